package core

import (
	"time"

	"github.com/tandem-router/tandem/internal/kv"
)

// Step runs one scheduler step: schedule, compute, sample.
func (e *Engine) Step(now time.Duration) Step {
	e.turn.now = now
	e.open(now)
	if e.life.dead == nil {
		e.failLoads()
		moved := false
		if e.life.sleep.paused {
			e.doze()
		} else {
			moved = e.schedule()
		}
		e.talk(now)
		if e.life.dead == nil {
			e.turn.step.Idle = !e.compute(now) && !moved
			e.hear()
			e.turn.step.Wake = e.wakeAt()
			e.publish()
		}
	}
	if e.life.dead != nil {
		e.turn.step = Step{Idle: true}
	}
	return e.turn.step
}

// open clears the results of the last step.
func (e *Engine) open(now time.Duration) {
	for i, r := range e.memory.ended {
		e.memory.spare = append(e.memory.spare, r)
		e.memory.ended[i] = nil
	}
	e.memory.ended = e.memory.ended[:0]
	e.turn.step = Step{Outputs: e.turn.step.Outputs[:0], Orders: e.turn.step.Orders[:0]}
	e.turn.scheduled = e.turn.scheduled[:0]
	if e.life.dead == nil {
		e.expire(now)
		e.giveUpAsked(now)
		e.answerAsked(now)
		e.restored(now)
		e.announceSaved(now)
	}
}

// publish hands out the events. An idle engine makes no steps, so its events wait for the next request.
func (e *Engine) publish() {
	if len(e.known.reqs)+len(e.known.held)+e.loads.leaked > 0 || len(e.turn.step.Outputs) > 0 {
		e.turn.step.Events = e.pool.flush()
	}
}

// schedule chooses the work of this step. It reports whether a request changed its state without any work.
func (e *Engine) schedule() (moved bool) {
	budget := e.cfg.MaxBatchedTokens
	preempted := e.scheduleRunning(&budget)
	if preempted {
		return true
	}
	return e.scheduleWaiting(&budget)
}

// scheduleRunning gives each running request its next tokens, in order. If no free block is left, it preempts
// the last running request, which may be the request itself.
func (e *Engine) scheduleRunning(budget *int) (preempted bool) {
	for i := 0; i < len(e.queues.running) && *budget > 0; i++ {
		r := e.queues.running[i]
		n := min(len(r.text.tokens)-r.done.computed, *budget)
		for !e.grow(r, n+e.ahead(r)) {
			preempted = true
			if e.preemptLast() == r {
				return true
			}
		}
		e.run(r, n, budget)
	}
	return preempted
}

// run puts n tokens of r into this step and caches the blocks that these tokens fill. Later lookups hit them.
func (e *Engine) run(r *request, n int, budget *int) {
	r.done.chunk = n
	*budget -= n
	e.commit(r, (r.done.computed+n)/e.cfg.BlockSize)
	e.turn.scheduled = append(e.turn.scheduled, r)
}

// grow extends r's table to hold n more tokens.
func (e *Engine) grow(r *request, n int) bool {
	need := e.blocksFor(r.done.computed+n) - len(r.blocks.table)
	if need > e.pool.free {
		e.letGo(r)
	}
	if need > e.pool.free {
		return false
	}
	if need > 0 {
		r.blocks.table = e.pool.take(r.blocks.table, need)
	}
	return true
}

func (e *Engine) blocksFor(tokens int) int { return (tokens + e.cfg.BlockSize - 1) / e.cfg.BlockSize }

// preemptLast frees all blocks of the last running request and puts the request at the head of the queue. Its
// prompt and output will be computed again.
func (e *Engine) preemptLast() *request {
	last := len(e.queues.running) - 1
	r := e.queues.running[last]
	e.queues.running = e.queues.running[:last]
	e.vacate(r)
	r.done.preempts++
	r.state = waiting
	e.queues.waiting.unshift(r)
	e.counted.counts.Preemptions++
	return r
}

// commit caches the first n blocks of r's table under their hashes and announces the newly cached ones.
func (e *Engine) commit(r *request, n int) {
	from := r.blocks.committed
	n -= n % e.groups.align // no hit can end behind the last multiple of align
	if n <= from || e.cfg.NoPrefixCaching {
		return
	}
	for i := from; i < n; i++ {
		e.pool.cache(r.blocks.table[i], r.blocks.hashes[i])
	}
	r.blocks.committed = n
	for number := range e.groups.count {
		if number == e.groups.full {
			e.announce(r, from, n)
			continue
		}
		e.commitThin(r, e.groups.thinOf(number), from, n)
	}
}

// announce adds the event of r's full-attention blocks from..n.
func (e *Engine) announce(r *request, from, n int) {
	if e.cfg.NoEvents {
		return
	}
	ev := kv.Event{
		Kind: kv.Stored, Hashes: r.blocks.hashes[from:n:n],
		Tokens:    r.text.tokens[from*e.cfg.BlockSize : n*e.cfg.BlockSize : n*e.cfg.BlockSize],
		BlockSize: e.cfg.BlockSize, LoRA: r.ask.lora, SpecKind: fullAttention, Group: e.groups.full,
	}
	if from > 0 {
		ev.HasParent, ev.Parent = true, r.blocks.hashes[from-1]
	} else {
		ev.Salt = r.ask.salt
	}
	e.pool.events = append(e.pool.events, ev)
}

// scheduleWaiting admits requests while tokens, run slots and blocks last. Requests with loaded remote KV go
// first, then the queue in order. The first request without room stops all requests behind it.
func (e *Engine) scheduleWaiting(budget *int) (moved bool) {
	if e.loads.arrived > 0 {
		moved = e.admitLoaded(budget)
	}
	for e.queues.waiting.len() > 0 && *budget > 0 && len(e.queues.running) < e.cfg.MaxSeqs {
		r := e.queues.waiting.front()
		if e.asks(r) {
			e.queues.waiting.pop()
			continue
		}
		if !e.admit(r, budget) {
			return moved
		}
		e.queues.waiting.pop()
		moved = true
		if e.life.dead != nil {
			return moved
		}
	}
	return moved
}

// admitLoaded runs requests whose blocks a peer filled. With policy Recompute, it queues requests with a
// failed load for prefill here. A request needs new blocks only for tokens that the peer left to this engine.
func (e *Engine) admitLoaded(budget *int) (moved bool) {
	keep := e.loads.loading[:0]
	for _, r := range e.loads.loading {
		n := min(len(r.text.tokens)-r.loadedTo(), *budget)
		short := r.load.failed == nil && e.blocksFor(r.loadedTo()+n)-len(r.blocks.table) > e.pool.free
		if r.state != loaded || *budget == 0 || len(e.queues.running) == e.cfg.MaxSeqs || short {
			keep = append(keep, r)
			continue
		}
		moved = true
		e.loads.arrived--
		if r.load.failed != nil {
			e.recompute(r)
			continue
		}
		e.promote(r)
		e.grow(r, n)
		e.start(r, n, budget)
	}
	clear(e.loads.loading[len(keep):])
	e.loads.loading = keep
	return moved
}

// promote caches the blocks that a peer filled.
func (e *Engine) promote(r *request) {
	r.load.received = r.cached.local + r.cached.external
	r.done.computed = r.loadedTo()
	e.commit(r, r.load.received/e.cfg.BlockSize)
	r.noteHit(r.load.received, e.turn.now)
	if e.loadsInStep() { // P's blocks have the last token too, which D computes again
		r.load.received = max(r.load.received, r.text.prompt)
	}
}

// loadedTo is the number of tokens that are not computed once the peer's blocks are loaded. The last token is
// computed again, for its logits.
func (r *request) loadedTo() int { return min(r.cached.local+r.cached.external, len(r.text.tokens)-1) }

// start makes r run with its first n tokens. r's table must have room for them.
func (e *Engine) start(r *request, n int, budget *int) {
	r.state = running
	e.queues.running = append(e.queues.running, r)
	e.run(r, n, budget)
}

// admit gives the head of the queue its blocks, cached ones first. It then runs the request or starts the
// load of its remote KV. It returns false if there is no room.
func (e *Engine) admit(r *request, budget *int) bool {
	e.turn.hits = e.lookup(r)
	local := len(e.turn.hits) * e.cfg.BlockSize
	external, below := e.elsewhere(r, local)
	total, n := local+external, 0
	if external == 0 || below == 0 && e.loadsInStep() {
		n = min(len(r.text.tokens)-total, *budget)
	}
	if !e.fits(r, total+n, external > 0) {
		return false
	}
	e.pool.touch(e.turn.hits)
	e.pool.touch(e.turn.beside)
	r.blocks.table = append(r.blocks.table[:0], e.turn.hits...)
	r.blocks.beside = append(r.blocks.beside[:0], e.turn.beside...)
	r.blocks.committed = len(e.turn.hits)
	r.blocks.table = e.pool.take(r.blocks.table, max(0, e.blocksFor(total+n)-len(r.blocks.table)))
	e.countLookup(r, local, external)
	r.cached.local, r.cached.external = local, external
	e.enlist(r)
	if below == 0 && external > 0 {
		e.park(r)
		return true
	}
	e.decline(r)
	if below > 0 {
		e.restore(r)
		return true
	}
	r.done.computed = local
	r.noteHit(local, e.turn.now)
	e.start(r, n, budget)
	return true
}

// elsewhere returns the number of r's tokens behind the local ones that a peer or host memory provides. below
// counts the tokens from host memory.
func (e *Engine) elsewhere(r *request, local int) (external, below int) {
	if t := e.pool.tier; t != nil && t.First {
		if below = e.offloaded(r, local); below > 0 {
			return below, below
		}
	}
	if external = e.promised(r, local); external > 0 {
		return external, 0
	}
	below = e.offloaded(r, local)
	return below, below
}

// lookup finds the cached blocks of r. At least one token is left to compute, because its logits are needed.
func (e *Engine) lookup(r *request) []int32 {
	e.turn.beside, r.cached.junction = e.turn.beside[:0], 0
	if r.ask.skipRead {
		return e.turn.hits[:0]
	}
	n := (len(r.text.tokens) - 1) / e.cfg.BlockSize
	hits := e.pool.match(e.turn.hits[:0], r.blocks.hashes[:n])
	if len(e.groups.thin) == 0 {
		return hits
	}
	return hits[:e.narrow(r, len(hits))]
}

// fits reports whether r may take the blocks that it needs. A prompt is admitted only if the whole prompt
// fits, even if its first chunk needs less. A load must leave enough free blocks for prompts that are being
// computed.
func (e *Engine) fits(r *request, tokens int, load bool) bool {
	idle := e.pool.idle(e.turn.hits) + e.pool.idle(e.turn.beside)
	if load {
		return e.blocksFor(tokens)-len(e.turn.hits)+idle <= e.pool.free-e.reserved()
	}
	return e.blocksFor(len(r.text.tokens))-len(e.turn.hits)+idle <= e.pool.free
}

// reserved is the number of blocks that running prompts and loading requests still have to take.
func (e *Engine) reserved() int {
	n := 0
	for _, r := range e.queues.running {
		if r.done.computed+r.done.chunk < len(r.text.tokens) {
			n += e.blocksFor(len(r.text.tokens)) - len(r.blocks.table)
		}
	}
	for _, r := range e.loads.loading {
		n += e.blocksFor(len(r.text.tokens)) - len(r.blocks.table)
	}
	return n
}

func (e *Engine) countLookup(r *request, local, external int) {
	if r.done.preempts > 0 {
		return
	}
	if !e.cfg.NoLoad {
		// Requests without a transfer count too: vLLM asks the connector for each request.
		e.counted.counts.ExternalQueries += uint64(len(r.text.tokens) - local)
		e.counted.counts.ExternalHits += uint64(external)
	}
	if r.ask.skipRead {
		return
	}
	e.counted.counts.PrefixQueries += uint64(len(r.text.tokens))
	e.counted.counts.PrefixHits += uint64(local)
}
