package decode

import (
	"slices"
	"time"

	"tandem/scoring"
)

// turns is whose prompts one replica computes in pieces now, and who waits to go on. Guarded by the lock of
// the pool.
type turns struct {
	flying  []*Lease // whose piece, or rest, the engine has
	waiting []*Lease // in no order
	opened  bool     // something has ended since those who wait have looked
	asked   int      // pieces that the engine has: requests that are in no other count
}

// inFlight returns the seconds of what the engine has.
func (t *turns) inFlight() float64 {
	sum := 0.0
	for _, l := range t.flying {
		sum += l.pieces.lasts
	}
	return sum
}

// first returns who of those that wait goes first, nil for nobody.
func (t *turns) first(speed *scoring.Speed) *Lease {
	var best *Lease
	for _, l := range t.waiting {
		if best == nil || l.due(speed) < best.due(speed) {
			best = l
		}
	}
	return best
}

// forget takes l out of those that wait.
func (t *turns) forget(l *Lease) {
	l.pieces.wake = nil
	if at := slices.Index(t.waiting, l); at >= 0 {
		t.waiting = slices.Delete(t.waiting, at, at+1)
	}
}

// leave notes that the engine has nothing of l's any more.
func (t *turns) leave(l *Lease) {
	if l.pieces.upto > 0 && l.pieces.upto < l.tokens {
		t.asked--
	}
	l.pieces.upto = 0
	if at := slices.Index(t.flying, l); at >= 0 {
		t.flying = slices.Delete(t.flying, at, at+1)
		t.opened = true
	}
}

// endPieces takes l out, and rouses who goes on.
func (p *Pool) endPieces(l *Lease) {
	if !l.pieces.on {
		return
	}
	l.pieces.on = false
	t, speed := &l.member.turns, p.speed(l.member)
	t.forget(l)
	t.leave(l)
	if first := t.first(&speed); first != nil {
		first.rouse()
	}
}

// expire lets nobody wait longer for what is flying than twice its time.
func (t *turns) expire(now time.Time) {
	before := len(t.flying)
	t.flying = slices.DeleteFunc(t.flying, func(l *Lease) bool { return !now.Before(l.pieces.until) })
	t.opened = t.opened || len(t.flying) < before
}

// soonest returns in how long something that is flying does not count any more.
func (t *turns) soonest(now time.Time) time.Duration {
	wait := time.Second
	for _, l := range t.flying {
		wait = min(wait, l.pieces.until.Sub(now))
	}
	return max(wait, pieceHops)
}

func (l *Lease) rouse() {
	if wake := l.pieces.wake; wake != nil {
		l.pieces.wake = nil
		wake()
	}
}
