package core

import (
	"slices"
	"time"
)

// sleeping is vLLM's sleep mode: the engine schedules nothing, and its KV cache is discarded.
type sleeping struct {
	paused  bool     // nothing is scheduled; new requests are queued
	level   int      // from level 1 on, the KV cache is discarded
	emptied bool     // the engine sleeps; at level 1 and 2, the cache is discarded
	aborted []Output // ends of the requests that the sleep aborted, for the next step
	// Number of times that this process has registered its KV memory: 1 at the start, one more after each
	// sleep of level 1 or 2. A peer with an older registration cannot read.
	registration int
}

// Sleep aborts all requests, like POST /sleep with mode "abort". The engine schedules nothing until Wake.
// From level 1 on, the cache is discarded as soon as no lease holds a block.
func (e *Engine) Sleep(now time.Duration, level int) {
	if e.life.dead != nil || e.life.sleep.paused {
		return
	}
	e.life.sleep.paused, e.life.sleep.emptied = true, false
	e.life.sleep.level = level
	var all []*request
	for _, r := range e.known.reqs {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *request) int { return int(a.seq) - int(b.seq) })
	for _, r := range all {
		e.life.sleep.aborted = append(e.life.sleep.aborted,
			Output{ID: r.id, Finished: true, Reason: FinishAbort, Prompt: r.text.prompt})
		e.Abort(now, r.id)
	}
}

// Wake ends a sleep. Requests that arrived during the sleep then run.
func (e *Engine) Wake() {
	if e.life.sleep.emptied && e.life.sleep.level > 0 {
		e.life.sleep.registration++
	}
	e.life.sleep.paused, e.life.sleep.emptied = false, false
}

// Asleep reports whether the engine sleeps, and at which level. An engine that waits for leases does not
// sleep yet.
func (e *Engine) Asleep() (level int, asleep bool) {
	return e.life.sleep.level, e.life.sleep.paused && e.life.sleep.emptied
}

// Registration is the number of the current KV memory registration. Peers ask for it in the handshake. Peers
// with MoRI-IO never ask again, and cannot read the memory of the next process.
func (e *Engine) Registration() int {
	if e.cfg.MoRIIO != 0 {
		return e.life.gen + 1
	}
	return e.life.sleep.registration
}

// doze replaces scheduling while the engine is paused.
func (e *Engine) doze() {
	e.turn.step.Outputs = append(e.turn.step.Outputs, e.life.sleep.aborted...)
	e.life.sleep.aborted = nil
	if !e.life.sleep.emptied && len(e.known.held) == 0 {
		e.life.sleep.emptied = e.life.sleep.level == 0 || e.pool.reset()
	}
}
