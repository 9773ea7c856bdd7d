// Package turns holds the prompts that one replica computes itself. It decides which prompts the engine gets
// in pieces now, and which prompts have to wait. It takes times and durations as numbers, and knows no
// leases and no speeds. [Turns] is not safe for concurrent use: the pool holds it under its own lock.
// [Streams] is.
package turns

import (
	"slices"
	"time"

	"github.com/tandem-router/tandem/decode/order"
)

// Hops is the round trip of a message to the engine, which lies between two pieces.
const Hops = time.Millisecond

// Prompt is the state of one prompt that a replica computes itself. The zero Prompt is sent whole.
//
// Long: the whole state of the pieces of one prompt.
type Prompt struct {
	ID         uint64        // distinguishes prompts with equal turns
	Predicted  time.Duration // for the remaining tokens
	BookedAt   time.Time
	prev, next *Prompt // in the queue of its replica

	On     bool   // it is sent in pieces
	Tokens int    // of the whole prompt
	Due    int64  // its turn: it goes before prompts with a later turn
	Prefix Prefix // the part that should be cached on the replica
	Begun  bool   // a piece has been computed
	Failed bool   // a piece has failed: the request itself comes next

	Pulls bool // the next part pulls the prefix from another engine

	Upto   int       // end of the part that the engine has now, 0 for none
	Lasts  float64   // predicted seconds of the part
	Begins time.Time // when the engine can have begun with that part
	Until  time.Time // the part counts until then, even without an answer
	Roomy  bool      // there was room for the part

	place int    // in the heap of waiting prompts
	wake  func() // while it waits
}

// Pull records that the first part of x pulls so many leading tokens from another engine; 0 for none.
func (x *Prompt) Pull(tokens int) {
	if tokens > 0 {
		x.Prefix.Base, x.Pulls = tokens, true
	}
}

// Prefix is the beginning of a prompt that should be cached on its replica.
type Prefix struct {
	Base    int // leading tokens that were cached when it was booked, or are pulled, or after its newest piece
	seen    int // largest part of Base that events have announced since
	evicted int // tokens of Base that are evicted
}

// Tokens returns how many leading tokens should be cached.
func (x *Prefix) Tokens() int { return x.Base - x.evicted }

// Heard takes in how many leading tokens the events announce. Tokens that the events have not announced yet
// are not evicted: these tokens are predicted to come, or were computed just now. Heard reports whether the
// evicted part has changed.
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

// Turns holds the prompts that one replica computes itself: the prompts under way in pieces now, and the
// prompts that wait for a turn. [New] makes one.
type Turns struct {
	Queue
	flying  []*Prompt          // the engine has a piece, or the rest, of each
	waiting order.Heap[Prompt] // the next turn first
	opened  bool               // a part has ended since a waiting prompt last asked
	asked   int                // pieces at the engine: requests that no other count includes
}

// New returns turns without prompts.
func New() Turns {
	return Turns{waiting: order.NewHeap(
		func(a, b *Prompt) bool { return a.Due < b.Due },
		func(x *Prompt) *int { return &x.place },
	)}
}

// Asked returns how many pieces are at the engine: requests that no other count includes.
func (t *Turns) Asked() int { return t.asked }

// Flying returns the number of prompts of which the engine has a part.
func (t *Turns) Flying() int { return len(t.flying) }

// Waiting returns how many prompts wait for their turn.
func (t *Turns) Waiting() int { return t.waiting.Len() }

// First returns the waiting prompt with the next turn, nil for none.
func (t *Turns) First() *Prompt { return t.waiting.First() }

// Moved records that the turn of a prompt has moved: a prompt that asked before may be next.
func (t *Turns) Moved() { t.opened = true }

// InFlight returns the seconds of the parts at the engine. The fixed time of a step is paid once for all
// prompts in it.
func (t *Turns) InFlight(step float64) float64 {
	sum := 0.0
	for _, x := range t.flying {
		sum += max(0, x.Lasts-step)
	}
	return sum
}

// Left returns the seconds until the engine has finished all its parts. It computes one prompt after the
// other.
func (t *Turns) Left(step float64, now time.Time) float64 {
	if len(t.flying) == 0 {
		return 0
	}
	first := t.flying[0]
	done := now.Sub(first.Begins).Seconds() // less than 0 where it has not begun
	return t.InFlight(step) - min(done, max(0, first.Lasts-step))
}

// Take records that the engine gets the next part of x now.
func (t *Turns) Take(x *Prompt) {
	if x.Upto < x.Tokens {
		t.asked++
	}
	t.flying = append(t.flying, x)
}

// Wait lets x wait for its turn, and returns when it asks again, unless wake is called before. after is when
// the engine can have room again; zero means at its answers. wake is called once: it must neither block nor
// ask for a turn.
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

// Forget removes x from the waiting prompts.
func (t *Turns) Forget(x *Prompt) {
	x.wake = nil
	t.waiting.Remove(x)
}

// Leave records that the engine has no part of x any more, and can have begun with the next prompt. The
// caller sets Upto, which others count, to zero.
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

// Expire stops counting parts that have taken more than twice their time.
func (t *Turns) Expire(now time.Time) {
	before := len(t.flying)
	t.flying = slices.DeleteFunc(t.flying, func(x *Prompt) bool { return !now.Before(x.Until) })
	t.opened = t.opened || len(t.flying) < before
}

// askAgain returns when x asks again whether it may go on. The first waiting prompt asks when a part at the
// engine stops counting, or at after. The others are woken when their turn comes, so that long waits cost
// nothing.
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

// WakeUp lets x ask again, if it waits.
func (x *Prompt) WakeUp() {
	if wake := x.wake; wake != nil {
		x.wake = nil
		wake()
	}
}
