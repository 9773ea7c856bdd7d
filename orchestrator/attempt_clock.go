package orchestrator

import (
	"context"
	"errors"
	"sync"
	"time"
)

// attemptClock ends an attempt whose request has ended, whose phases take too long, or which waits for an
// engine that stands still. Phases follow one another: there is one at a time.
type attemptClock struct {
	parent context.Context         // of the request
	own    context.Context         // of the attempt
	cancel context.CancelCauseFunc // ends it
	unhook func() bool             // it does not end with the request any more; nil before it has begun
	grace  prefillGrace

	timer *time.Timer // of all phases, nil before the first
	runs  bool        // in a phase
	rung  bool        // a phase was not in time
	late  error       // why the attempt ends where the phase that runs takes too long
	watch legWatch
}

// begin makes the context of the attempt. It ends when the request does, or later: see [prefillGrace].
func (c *attemptClock) begin(ctx context.Context) context.Context {
	c.parent = ctx
	c.own, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx)) // ended by end
	if c.unhook = context.AfterFunc(ctx, c.requestEnded); ctx.Err() != nil {
		c.cancel(context.Cause(ctx))
	}
	return c.own
}

// end ends the attempt. Harmless when repeated, and before it has begun.
func (c *attemptClock) end() {
	if c.stop(); c.unhook != nil {
		c.unhook()
		c.cancel(nil)
	}
}

// start gives the phase that begins now d to end, or else late ends the attempt.
func (c *attemptClock) start(d time.Duration, late error) {
	if !c.stop() {
		return
	}
	c.runs, c.late = true, late
	if c.timer == nil {
		c.timer = time.AfterFunc(d, func() { c.cancel(c.late) })
		return
	}
	c.timer.Reset(d)
}

// stop ends the phase that runs, and reports whether that and all before were in time: else the attempt ends.
func (c *attemptClock) stop() bool {
	if c.runs {
		c.runs, c.rung = false, !c.timer.Stop()
	}
	return !c.rung
}

// How long a prefill leg goes on after its client has left.
//
// A prefill engine that is cut off while it computes frees its blocks. One that has just finished keeps them
// for its whole lease, and only its answer, which is on its way, could give them back. From outside the two
// look alike. So the answer is waited for where it is due, by what the plan expected of the prefill, and for
// a moment where it is not: seconds of needless computing would cost more than a rare lease.
const (
	shortGrace = 250 * time.Millisecond
	nearlyDue  = 2 * time.Second // an answer that is expected within that is waited for
	overdue    = 2 * time.Second // and that much longer than it was expected
)

// grace is how long the answer of a prefill is waited for that is expected at due, once its client has left.
func grace(due, now time.Time) time.Duration {
	if left := due.Sub(now); left <= nearlyDue {
		return max(left, 0) + overdue
	}
	return shortGrace
}

// prefillGrace is the answer of a prefill leg that is worth waiting for.
type prefillGrace struct {
	mu  sync.Mutex
	due time.Time // when it is expected, zero where none is
}

// expect begins it: the answer is expected at due.
func (g *prefillGrace) expect(due time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.due = due
}

// wait is how much longer an attempt goes on whose request has ended for this cause.
func (g *prefillGrace) wait(cause error, now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.due.IsZero() {
		return 0
	}
	return graceFor(cause, g.due, now)
}

// answered ends the grace: the answer is there, or will not be. An attempt whose request has ended meanwhile
// ends now.
func (c *attemptClock) answered() {
	c.grace.expect(time.Time{})
	if c.parent.Err() != nil {
		c.cancel(context.Cause(c.parent))
	}
}

// requestEnded ends the attempt, as much later as the answer of a prefill is worth.
func (c *attemptClock) requestEnded() {
	cause := context.Cause(c.parent)
	if wait := c.grace.wait(cause, time.Now()); wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-c.own.Done():
		}
	}
	c.cancel(cause)
}

// graceFor returns how long a leg goes on after its request has ended for this cause. A router that stops
// gives no grace.
func graceFor(cause error, due, now time.Time) time.Duration {
	if errors.Is(cause, errStopped) {
		return shortGrace
	}
	return grace(due, now)
}
