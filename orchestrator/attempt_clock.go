package orchestrator

import (
	"context"
	"errors"
	"sync"
	"time"
)

// attemptClock ends an attempt whose request has ended, whose phase takes too long, or whose engine stands
// still. One phase runs at a time.
type attemptClock struct {
	parent context.Context         // of the request
	own    context.Context         // of the attempt
	cancel context.CancelCauseFunc // ends it
	unhook func() bool             // stops watching the end of the request; nil before begin
	grace  prefillGrace

	timer *time.Timer // of all phases, nil before the first
	runs  bool        // in a phase
	rung  bool        // a phase was not in time
	late  error       // the reason for the end if the present phase takes too long
	watch legWatch
}

// begin makes the context of the attempt. The context ends with the request, or later: see [prefillGrace].
func (c *attemptClock) begin(ctx context.Context) context.Context {
	c.parent = ctx
	c.own, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx)) // ended by end
	if c.unhook = context.AfterFunc(ctx, c.requestEnded); ctx.Err() != nil {
		c.cancel(context.Cause(ctx))
	}
	return c.own
}

// end ends the attempt. Calls before begin, or repeated calls, have no effect.
func (c *attemptClock) end() {
	if c.stop(); c.unhook != nil {
		c.unhook()
		c.cancel(nil)
	}
}

// start begins a phase that may take d. If it takes longer, the attempt ends with the error late.
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

// stop ends the present phase, and reports whether all phases so far were in time. If not, the attempt ends.
func (c *attemptClock) stop() bool {
	if c.runs {
		c.runs, c.rung = false, !c.timer.Stop()
	}
	return !c.rung
}

// These constants say how long a prefill leg continues after its client has left.
//
// A prefill engine that is cut off while it computes frees its blocks. An engine that has just finished keeps
// its blocks for the whole lease. Only its answer, which is on its way, would let the router give the blocks
// back. The router cannot distinguish the two cases. So it waits for the answer if the plan expects the
// answer about now, and otherwise only for a moment: seconds of useless computing would cost more than a rare
// lease.
const (
	shortGrace = 250 * time.Millisecond
	nearlyDue  = 2 * time.Second // an answer that is expected within this time is waited for
	overdue    = 2 * time.Second // and this much longer than expected
)

// grace returns how long to wait for the answer of a prefill after its client has left. The answer is
// expected at due.
func grace(due, now time.Time) time.Duration {
	if left := due.Sub(now); left <= nearlyDue {
		return max(left, 0) + overdue
	}
	return shortGrace
}

// prefillGrace is what is worth waiting for after the request has ended: the answer of a prefill leg, or the
// blocks of a decode leg that leaves its own blocks held if it is cut while it waits for them.
type prefillGrace struct {
	mu    sync.Mutex
	due   time.Time // when the answer is expected; zero: no answer is expected
	uncut time.Time // until then the decode leg is not cut; zero: it may be cut
}

// keep sets until when a decode leg is not cut.
func (g *prefillGrace) keep(until time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.uncut = until
}

// expect sets when the answer is expected.
func (g *prefillGrace) expect(due time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.due, g.uncut = due, time.Time{}
}

// wait returns how much longer an attempt continues after its request has ended for this cause.
func (g *prefillGrace) wait(cause error, now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case now.Before(g.uncut) && errors.Is(cause, errStopped):
		return min(g.uncut.Sub(now), overdue) // blocks arrive in less, or not at all
	case now.Before(g.uncut):
		return g.uncut.Sub(now)
	case g.due.IsZero():
		return 0
	}
	return graceFor(cause, g.due, now)
}

// answered ends the grace: the answer, or the blocks, have arrived, or will not arrive. If the request has
// ended meanwhile, the attempt ends now.
func (c *attemptClock) answered() {
	c.grace.expect(time.Time{})
	if c.parent.Err() != nil {
		c.cancel(context.Cause(c.parent))
	}
}

// requestEnded ends the attempt, now or after the grace for the answer of a prefill.
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
