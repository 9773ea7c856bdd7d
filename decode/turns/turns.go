// Package turns has the prompts that one replica computes itself. It decides which prompts the engine gets in
// pieces now, and which of them have to wait. It takes times and durations as numbers, and knows no leases
// and no speeds. [Turns] is not safe for concurrent use: the pool holds it under its own lock. [Streams] is.
package turns

import (
	"slices"
	"time"

	"github.com/tandem-router/tandem/decode/order"
)

// Hops is how long a message takes from here to the engine and back, which lies between two pieces.
const Hops = time.Millisecond

// Prompt is how far one prompt has come that a replica computes itself. The zero Prompt is sent whole.
//
// Long: one room holds all that is known of the pieces of one prompt.
type Prompt struct {
	ID         uint64        // tells prompts with equal turns apart
	Predicted  time.Duration // for what is left to compute
	Booked     time.Time
	prev, next *Prompt // in the queue of its replica

	On     bool   // it is sent in pieces
	Tokens int    // of all of it
	Due    int64  // its turn: it goes before those whose turn is later
	Prefix Prefix // what of it should be on the replica
	Begun  bool   // a piece has been computed
	Failed bool   // a piece has: the request itself comes next

	Upto   int       // of what the engine has now, 0 nothing
	Lasts  float64   // seconds predicted for it
	Begins time.Time // when the engine can have begun with it
	Until  time.Time // from when it does not count, whatever is heard of it
	Roomy  bool      // there was room for it

	place int    // among those that wait
	wake  func() // while it waits
}

// Prefix is what of the beginning of a prompt should be on its replica.
type Prefix struct {
	Base    int // leading tokens that were there when it was booked, or are by its newest piece
	seen    int // the most of Base that events have told of since
	evicted int // tokens of Base that are not there any more
}

// Tokens returns how many leading tokens should be there.
func (x *Prefix) Tokens() int { return x.Base - x.evicted }

// Heard takes in that events tell of so many leading tokens. What they have not told of yet is not gone: it
// is guessed to come, or was computed just now. It reports whether something else is gone than before.
func (x *Prefix) Heard(tokens int) (moved bool) {
	x.seen = max(x.seen, tokens)
	evicted := 0
	if tokens < x.seen {
		evicted = x.Base - tokens
	}
	if evicted == x.evicted {
		return false
	}
	x.evicted = evicted
	return true
}

// Turns is the prompts that one replica computes itself, those that it computes in pieces now, and those that
// wait to go on. [New] makes one.
type Turns struct {
	Queue
	flying  []*Prompt          // the engine has a piece, or the rest, of each
	waiting order.Heap[Prompt] // the next turn first
	opened  bool               // something has ended since those who wait have looked
	asked   int                // pieces that the engine has: requests that are in no other count
}

// New returns turns that nobody takes.
func New() Turns {
	return Turns{waiting: order.NewHeap(
		func(a, b *Prompt) bool { return a.Due < b.Due },
		func(x *Prompt) *int { return &x.place },
	)}
}

// Asked returns how many pieces the engine has: requests that are in no other count.
func (t *Turns) Asked() int { return t.asked }

// Flying returns of how many prompts the engine has something.
func (t *Turns) Flying() int { return len(t.flying) }

// Waiting returns how many prompts wait for their turn.
func (t *Turns) Waiting() int { return t.waiting.Len() }

// First returns the prompt whose turn is next among those that wait, nil where none waits.
func (t *Turns) First() *Prompt { return t.waiting.First() }

// Moved says that the turn of a prompt has moved: somebody that asked before may be next.
func (t *Turns) Moved() { t.opened = true }

// InFlight returns the seconds of what the engine has. What a step takes whatever it computes, it takes once
// for all prompts in it.
func (t *Turns) InFlight(step float64) float64 {
	sum := 0.0
	for _, x := range t.flying {
		sum += max(0, x.Lasts-step)
	}
	return sum
}

// Left returns the seconds until the engine is through with what it has: it computes one prompt after the
// other.
func (t *Turns) Left(step float64, now time.Time) float64 {
	if len(t.flying) == 0 {
		return 0
	}
	first := t.flying[0]
	done := now.Sub(first.Begins).Seconds() // less than 0 where it has not begun
	return t.InFlight(step) - min(done, max(0, first.Lasts-step))
}

// Take notes that the engine gets what x says from now on.
func (t *Turns) Take(x *Prompt) {
	if x.Upto < x.Tokens {
		t.asked++
	}
	t.flying = append(t.flying, x)
}

// Wait lets x wait for its turn, and returns in how long it asks again, unless wake is called before. after
// is when the engine can have been through with enough, zero where that is for its answers to tell. wake is
// called once: it must neither block nor ask for a turn.
func (t *Turns) Wait(x *Prompt, wake func(), after, now time.Time) time.Duration {
	first := t.waiting.First()
	x.wake = wake
	t.waiting.Add(x)
	if t.opened && first != nil {
		first.WakeUp() // once: to wake each other for nothing would never end
	}
	t.opened = false
	return t.askAgain(x, after, now)
}

// Forget takes x out of those that wait.
func (t *Turns) Forget(x *Prompt) {
	x.wake = nil
	t.waiting.Remove(x)
}

// Leave notes that the engine has nothing of x any more, and can have begun with the next one. Upto, which
// others count, is for the caller to set to zero.
func (t *Turns) Leave(x *Prompt, now time.Time) {
	if x.Upto > 0 && x.Upto < x.Tokens {
		t.asked--
	}
	if at := slices.Index(t.flying, x); at >= 0 {
		t.flying = slices.Delete(t.flying, at, at+1)
		t.opened = true
		if at == 0 && len(t.flying) > 0 {
			if next := t.flying[0]; next.Begins.Before(now) {
				next.Begins = now
			}
		}
	}
}

// Expire lets nobody wait longer for what is flying than twice its time.
func (t *Turns) Expire(now time.Time) {
	before := len(t.flying)
	t.flying = slices.DeleteFunc(t.flying, func(x *Prompt) bool { return !now.Before(x.Until) })
	t.opened = t.opened || len(t.flying) < before
}

// askAgain returns in how long x asks again whether it goes on: who goes first when something that is flying
// does not count any more, or after so long. The others are woken when their turn comes, so that those who
// wait for long cost nothing.
func (t *Turns) askAgain(x *Prompt, after, now time.Time) time.Duration {
	wait := time.Second
	if x != t.waiting.First() {
		return wait
	}
	for _, flies := range t.flying {
		wait = min(wait, flies.Until.Sub(now))
	}
	if !after.IsZero() {
		wait = min(wait, after.Sub(now))
	}
	return max(wait, Hops)
}

// WakeUp lets x ask again, where it waits.
func (x *Prompt) WakeUp() {
	if wake := x.wake; wake != nil {
		x.wake = nil
		wake()
	}
}
