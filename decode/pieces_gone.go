package decode

import "time"

// prefix is what is known of the tokens that a lease was booked behind.
type prefix struct {
	looked bool
	heard  int // that the replica had by its events at the first look
	gone   int // that are not there any more
}

// heard returns how many of the tokens that l was booked behind are on its replica now, by its events. It is
// called without the pool's lock, by who sends the pieces.
func (l *Lease) heard() int {
	if l.matched == 0 || l.prompt.pieces.done > 0 {
		return 0 // nobody asks
	}
	return l.pool.Heard(&l.member.Member, l.named, l.matched)
}

// misses takes in that so many are: a prompt that waits for its turn may lose them to others. A first piece
// that goes to the end of what is not there any more would be as long as that, and hold up every stream. What
// was not there by events at first, but is guessed to come, is not gone.
func (l *Lease) misses(heard int, now time.Time) {
	x := &l.prompt.pieces.prefix
	switch {
	case l.matched == 0 || l.prompt.pieces.done > 0 || l.prompt.state != pending:
		return
	case !x.looked:
		x.looked, x.heard = true, heard
		return
	}
	gone := 0
	if heard < x.heard {
		gone = l.matched - heard
	}
	if gone != x.gone {
		x.gone = gone
		l.pool.progress(l, now)
	}
}
