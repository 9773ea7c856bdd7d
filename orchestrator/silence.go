package orchestrator

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"tandem/internal/replica"
)

// silent is an engine that stood still (SIGSTOP, a paused machine, a stuck driver) while transfer parameters that it needs were under way.
//
// A decode engine that goes on after the lease has ended pulls blocks that belong to somebody else by then, and so does one whose prefill engine has
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

// guard watches over one decode leg of a split request until its first content. Safe for concurrent use.
type guard struct {
	h     *handoff
	to    *reach // decode
	bound time.Duration
	sent  time.Duration // on the clock of [stallWatch.lived]

	mu    sync.Mutex // guards the following
	timer *time.Timer
	over  bool
}

// guardSilence starts to watch.
func (h *handoff) guardSilence(to *reach) *guard {
	cfg := h.cfg
	poll := max(cfg.Pools.Prefill.PollInterval, cfg.Pools.Decode.PollInterval)
	g := &guard{h: h, to: to, bound: max((cfg.Connector.Lease-cfg.Connector.Margin)*2/3, 3*poll), sent: h.j.q.o.stall.lived(time.Now())}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.timer = time.AfterFunc(g.bound, g.check)
	return g
}

// check gives the leg up if one of its engines is silent. A prefill engine counts only if it fell silent early: later the blocks have been read.
func (g *guard) check() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		return
	}
	now := g.h.j.q.o.stall.lived(time.Now())
	decode, prefill := g.to.w.pulse.silence(now), time.Duration(0)
	if g.h.from != nil { // nil where the decode engine computes the prompt itself
		prefill = g.h.from.w.pulse.silence(now)
	}
	switch {
	case decode > g.boundOf(g.to):
		g.h.cancel(&silent{g.h.b.Decode.ID, "decode", decode})
	case g.h.from != nil && prefill > g.boundOf(g.h.from) && now-prefill < g.sent+g.bound:
		g.h.cancel(&silent{g.h.b.Prefill.ID, "prefill", prefill})
	default:
		g.timer.Reset(g.bound / 4)
	}
}

// boundOf is the silence that says that an engine stands still. It may be asked less often than when the leg was sent.
func (g *guard) boundOf(r *reach) time.Duration { return max(g.bound, r.w.pulse.usualPause()) }

// standstill is how long we and the prefill engine have stood still in all. What it grows by while a prefill is under way may lie between the beginning
// of its lease and the arrival of its answer, so it counts as the answer's age.
func (o *Orchestrator) standstill(from *reach, now time.Time) time.Duration {
	stall := o.stall
	return stall.stood(now) + from.w.pulse.stood(stall.lived(now))
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
