package decode

import (
	"slices"
	"time"
)

// turns is whose prompts one replica computes in pieces now, and who waits to go on. Guarded by the lock of
// the pool.
type turns struct {
	flying  []*Lease   // whose piece, or rest, the engine has
	waiting leaseQueue // by whose turn comes
	opened  bool       // something has ended since those who wait have looked
	asked   int        // pieces that the engine has: requests that are in no other count
}

func newTurns() turns {
	return turns{waiting: leaseQueue{
		before: func(a, b *Lease) bool { return a.due() < b.due() },
		place:  func(l *Lease) *int { return &l.prompt.pieces.place },
	}}
}

// inFlight returns the seconds of what the engine has. What a step takes whatever it computes, it takes once
// for all prompts in it.
func (t *turns) inFlight(step float64) float64 {
	sum := 0.0
	for _, l := range t.flying {
		sum += max(0, l.prompt.pieces.lasts-step)
	}
	return sum
}

// left returns the seconds until the engine is through with what it has: it computes one prompt after the
// other.
func (t *turns) left(step float64, now time.Time) float64 {
	if len(t.flying) == 0 {
		return 0
	}
	first := &t.flying[0].prompt.pieces
	done := now.Sub(first.begins).Seconds() // less than 0 where it has not begun
	return t.inFlight(step) - min(done, max(0, first.lasts-step))
}

// forget takes l out of those that wait.
func (t *turns) forget(l *Lease) {
	l.prompt.pieces.wake = nil
	t.waiting.remove(l)
}

// leave notes that the engine has nothing of l's any more, and can have begun with the next one.
func (t *turns) leave(l *Lease, now time.Time) {
	if l.prompt.pieces.upto > 0 && l.prompt.pieces.upto < l.tokens {
		t.asked--
	}
	l.asked(0)
	if at := slices.Index(t.flying, l); at >= 0 {
		t.flying = slices.Delete(t.flying, at, at+1)
		t.opened = true
		if at == 0 && len(t.flying) > 0 {
			if next := &t.flying[0].prompt.pieces; next.begins.Before(now) {
				next.begins = now
			}
		}
	}
}

// endPieces takes l out, and wakes who goes on.
func (l *Lease) endPieces(now time.Time) {
	if !l.prompt.pieces.on {
		return
	}
	g := &l.member.ledger
	g.sums.count(l, -1)
	g.orders.count(l, -1)
	l.prompt.pieces.on = false
	g.orders.count(l, 1)
	g.sums.count(l, 1)
	t := &l.member.turns
	t.forget(l)
	t.leave(l, now)
	if first := t.waiting.first(); first != nil {
		first.wakeUp()
	}
}

// expire lets nobody wait longer for what is flying than twice its time.
func (t *turns) expire(now time.Time) {
	before := len(t.flying)
	t.flying = slices.DeleteFunc(t.flying, func(l *Lease) bool { return !now.Before(l.prompt.pieces.until) })
	t.opened = t.opened || len(t.flying) < before
}

// askAgain returns in how long l asks again whether it goes on: who goes first when something that is flying
// does not count any more, or after so long. The others are woken when their turn comes, so that those who
// wait for long cost nothing.
func (t *turns) askAgain(l *Lease, after, now time.Time) time.Duration {
	wait := time.Second
	if l != t.waiting.first() {
		return wait
	}
	for _, flies := range t.flying {
		wait = min(wait, flies.prompt.pieces.until.Sub(now))
	}
	if !after.IsZero() {
		wait = min(wait, after.Sub(now))
	}
	return max(wait, pieceHops)
}

func (l *Lease) wakeUp() {
	if wake := l.prompt.pieces.wake; wake != nil {
		l.prompt.pieces.wake = nil
		wake()
	}
}
