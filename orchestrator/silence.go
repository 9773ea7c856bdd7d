package orchestrator

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"tandem/internal/replica"
)

// silent is an engine that stood still (SIGSTOP, a paused machine, a stuck driver) with a prompt in it, or while transfer parameters that it needs were under way.
//
// A prefill leg would wait for it as long as prefills may take, which is minutes, while others are idle. And a decode engine that goes on after the lease has ended pulls blocks that belong to somebody else by then, and so does one whose prefill engine has
// just gone on: 200 with wrong text. While both live, vLLM's heartbeats keep the lease, however long the decode engine's queue is. So what has to be
// noticed is not age but silence: a leg that waits for its first content is given up when either engine has not answered anything, its metrics included,
// for two thirds of what is left of the lease beyond the margin. The decode engine finds the connection closed when it goes on, and aborts.
type silent struct {
	at    replica.ID
	phase string
	since time.Duration
}

func (s *silent) Error() string {
	return fmt.Sprintf("%s has not answered anything for %v", s.at, s.since.Round(time.Millisecond))
}

// pulse is when an engine gave signs of life, and how long it gave none. Times are those of [stallWatch.lived]: while we stood still we heard nobody.
// Safe for concurrent use.
type pulse struct {
	mu    sync.Mutex    // guards the following
	usual time.Duration // the longest pause between two signs that means nothing
	next  time.Duration // what that is from the next sign on, 0 for no change
	last  time.Duration
	total time.Duration // of unusual pauses
}

// beat notes a sign of life.
func (p *pulse) beat(now time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total += p.pause(now)
	p.last = max(p.last, now)
	p.usual, p.next = cmp.Or(p.next, p.usual), 0
}

// setUsual says how long pauses may be that mean nothing. A shorter time holds for pauses that begin from now on.
func (p *pulse) setUsual(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.usual, p.next = max(p.usual, d), d
}

// usualPause is the longest pause that means nothing.
func (p *pulse) usualPause() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.usual
}

// silence is the time since the last sign.
func (p *pulse) silence(now time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return now - p.last
}

// stood is how long the engine was silent in all, a pause that lasts included. The difference of two calls bounds what it stood still between them.
func (p *pulse) stood(now time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total + p.pause(now)
}

// pause needs mu.
func (p *pulse) pause(now time.Duration) time.Duration {
	if d := now - p.last; d > p.usual {
		return d
	}
	return 0
}

// guard watches over one leg until it has what it waits for. Safe for concurrent use.
type guard struct {
	look func() (next time.Duration, found error) // when to look again, or why nothing will come of it
	end  context.CancelCauseFunc                  // of what waits

	mu    sync.Mutex // guards the following
	timer *time.Timer
	over  bool
}

// startGuard looks for the first time after so long.
func startGuard(first time.Duration, end context.CancelCauseFunc, look func() (time.Duration, error)) *guard {
	g := &guard{look: look, end: end}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.timer = time.AfterFunc(first, g.check)
	return g
}

func (g *guard) check() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		return
	}
	next, found := g.look()
	if found != nil {
		g.end(found)
		return
	}
	g.timer.Reset(next)
}

// guardSilence watches over a decode leg until its first content: it is given up if one of its engines is silent,
// or if its blocks are stuck between them. A prefill engine counts only if it fell silent early: later the blocks
// have been read.
func (h *handoff) guardSilence(to *reach) *guard {
	stall, bound := h.j.q.o.stall, h.silenceBound()
	sent, transfer := stall.lived(time.Now()), h.watchTransfer(to, bound/2)
	return startGuard(bound/2, h.cancel, func() (time.Duration, error) {
		if stuck := transfer.look(time.Now()); stuck != nil {
			return 0, stuck
		}
		now := stall.lived(time.Now())
		if decode := to.w.pulse.silence(now); decode > to.silentFrom(bound) {
			return 0, &silent{h.b.Decode.ID, "decode", decode}
		}
		if h.from == nil { // the decode engine computes the prompt itself
			return bound / 4, nil
		}
		prefill := h.from.w.pulse.silence(now)
		if prefill > h.from.silentFrom(bound) && now-prefill < sent+bound {
			return 0, &silent{h.b.Prefill.ID, "prefill", prefill}
		}
		return bound / 4, nil
	})
}

// guardPrefill watches over a prefill leg until its answer is there: it is given up, by end, if its engine is silent. An engine that goes on later finds the
// connection closed and drops the prompt; blocks that it keeps all the same come free with their lease, since nobody has their parameters.
func (h *handoff) guardPrefill(to *reach, end context.CancelCauseFunc) *guard {
	stall, bound, pulse := h.j.q.o.stall, h.silenceBound(), &to.w.pulse
	left := func() (silence, left time.Duration) {
		silence = pulse.silence(stall.lived(time.Now()))
		return silence, to.silentFrom(bound) - silence
	}
	_, first := left()
	return startGuard(max(first, bound/4), end, func() (time.Duration, error) {
		silence, left := left()
		if left < 0 {
			return 0, &silent{h.b.Prefill.ID, "prefill", silence}
		}
		return left + time.Millisecond, nil
	})
}

// silenceBound is the silence that says that an engine of the attempt stands still.
func (h *handoff) silenceBound() time.Duration {
	cfg := h.cfg
	poll := max(cfg.Pools.Prefill.PollInterval, cfg.Pools.Decode.PollInterval)
	return max((cfg.Connector.Lease-cfg.Connector.Margin)*2/3, 3*poll)
}

// silentFrom is that of an engine which may be asked less often than when the attempt began.
func (r *reach) silentFrom(bound time.Duration) time.Duration {
	return max(bound, r.w.pulse.usualPause())
}

// stop ends the watch. Harmless on nil, and when repeated.
func (g *guard) stop() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.over = true
	g.timer.Stop()
}

// standstill is how long we and the prefill engine have stood still in all. What it grows by while a prefill is under way may lie between the beginning
// of its lease and the arrival of its answer, so it counts as the answer's age.
func (o *Orchestrator) standstill(from *reach, now time.Time) time.Duration {
	stall := o.stall
	return stall.stood(now) + from.w.pulse.stood(stall.lived(now))
}
