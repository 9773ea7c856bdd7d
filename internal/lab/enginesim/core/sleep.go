package core

import (
	"slices"
	"time"
)

// sleeping is vLLM's sleep mode: an engine that schedules nothing, and whose KV cache is gone meanwhile.
type sleeping struct {
	paused  bool     // nothing is scheduled; requests that come are queued
	level   int      // of the sleep; from 1 on the KV cache goes
	emptied bool     // the cache is gone: the engine sleeps
	aborted []Output // of requests that the sleep ended, for the next step
	// How often this process has told peers where its KV memory is: 1 from the start, one more after each
	// sleep of level 1 or 2. Peers that know an older registration cannot read.
	registration int
}

// Sleep ends all requests, as POST /sleep with mode "abort" does, and schedules nothing until Wake. From
// level 1 on the cache goes too, as soon as no lease holds a block.
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

// Wake ends a sleep. Requests that came meanwhile run then.
func (e *Engine) Wake() {
	if e.life.sleep.emptied && e.life.sleep.level > 0 {
		e.life.sleep.registration++
	}
	e.life.sleep.paused, e.life.sleep.emptied = false, false
}

// Asleep says whether the engine sleeps, and at which level. An engine that still waits for leases does not
// sleep yet.
func (e *Engine) Asleep() (level int, asleep bool) {
	return e.life.sleep.level, e.life.sleep.paused && e.life.sleep.emptied
}

// Registration says which registration of its KV memory the engine has: peers ask for it when they shake
// hands.
func (e *Engine) Registration() int { return e.life.sleep.registration }

// doze says what a step does in the place of scheduling while the engine is to sleep.
func (e *Engine) doze() {
	e.turn.step.Outputs = append(e.turn.step.Outputs, e.life.sleep.aborted...)
	e.life.sleep.aborted = nil
	if !e.life.sleep.emptied && len(e.known.held) == 0 {
		e.life.sleep.emptied = e.life.sleep.level == 0 || e.pool.reset()
	}
}
