package core

import (
	"time"

	"tandem/internal/kv"
)

// Step runs one scheduler step: schedule, compute, sample.
func (e *Engine) Step(now time.Duration) Step {
	e.now = now
	e.open(now)
	if e.dead == nil {
		e.failLoads()
		moved := e.schedule()
		e.talk(now)
		if e.dead == nil {
			e.step.Idle = !e.compute(now) && !moved
			e.hear()
			e.step.Wake = e.wake()
			e.publish()
		}
	}
	if e.dead != nil {
		e.step = Step{Idle: true}
	}
	return e.step
}

// open clears what the last step gave out.
func (e *Engine) open(now time.Duration) {
	for i, r := range e.ended {
		e.spare = append(e.spare, r)
		e.ended[i] = nil
	}
	e.ended = e.ended[:0]
	e.step = Step{Outputs: e.step.Outputs[:0], Orders: e.step.Orders[:0]}
	e.scheduled = e.scheduled[:0]
	if e.dead == nil {
		e.expire(now)
	}
}

// publish hands out the events. An idle engine makes no steps, so that they wait for the next request.
func (e *Engine) publish() {
	if len(e.reqs)+len(e.held)+e.leaked > 0 || len(e.step.Outputs) > 0 {
		e.step.Events = e.pool.flush()
	}
}

// schedule chooses the work of this step; it says whether a request changed its place without any.
func (e *Engine) schedule() (moved bool) {
	budget := e.cfg.MaxBatchedTokens
	preempted := e.scheduleRunning(&budget)
	if preempted {
		return true
	}
	return e.scheduleWaiting(&budget)
}

// scheduleRunning gives each running request its next tokens, in order. Whoever finds no block takes those of
// the last one, or gives up its own.
func (e *Engine) scheduleRunning(budget *int) (preempted bool) {
	for i := 0; i < len(e.running) && *budget > 0; i++ {
		r := e.running[i]
		n := min(len(r.tokens)-r.computed, *budget)
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

// run puts n tokens of r into this step and caches the blocks that they fill: they can be hit from now on.
func (e *Engine) run(r *request, n int, budget *int) {
	r.chunk = n
	*budget -= n
	e.commit(r, (r.computed+n)/e.cfg.BlockSize)
	e.scheduled = append(e.scheduled, r)
}

// grow makes room in r's table for n more tokens.
func (e *Engine) grow(r *request, n int) bool {
	need := e.blocksFor(r.computed+n) - len(r.table)
	if need > e.pool.free {
		e.letGo(r)
	}
	if need > e.pool.free {
		return false
	}
	if need > 0 {
		r.table = e.pool.take(r.table, need)
	}
	return true
}

func (e *Engine) blocksFor(tokens int) int { return (tokens + e.cfg.BlockSize - 1) / e.cfg.BlockSize }

// preemptLast takes everything from the last running request and puts it at the head of the queue, to compute
// its prompt and output again.
func (e *Engine) preemptLast() *request {
	last := len(e.running) - 1
	r := e.running[last]
	e.running = e.running[:last]
	e.vacate(r)
	r.preempts++
	r.state = waiting
	e.waiting.unshift(r)
	e.counts.Preemptions++
	return r
}

// commit caches the first n blocks of r's table under their hashes and announces those that were not yet.
func (e *Engine) commit(r *request, n int) {
	from := r.committed
	n -= n % e.groups.align // of what no hit can end in nothing is cached
	if n <= from || e.cfg.NoPrefixCaching {
		return
	}
	for i := from; i < n; i++ {
		e.pool.cache(r.table[i], r.hashes[i])
	}
	r.committed = n
	for number := range e.groups.count {
		if number == e.groups.full {
			e.announce(r, from, n)
			continue
		}
		e.commitThin(r, e.groups.thinOf(number), from, n)
	}
}

// announce tells of r's blocks of full attention from one to another.
func (e *Engine) announce(r *request, from, n int) {
	if e.cfg.NoEvents {
		return
	}
	ev := kv.Event{
		Kind: kv.Stored, Hashes: r.hashes[from:n:n],
		Tokens:    r.tokens[from*e.cfg.BlockSize : n*e.cfg.BlockSize : n*e.cfg.BlockSize],
		BlockSize: e.cfg.BlockSize, LoRA: r.lora, SpecKind: fullAttention, Group: e.groups.full,
	}
	if from > 0 {
		ev.HasParent, ev.Parent = true, r.hashes[from-1]
	} else {
		ev.Salt = r.salt
	}
	e.pool.events = append(e.pool.events, ev)
}

// scheduleWaiting admits requests while there are tokens, run slots and blocks: first those whose remote KV
// is there, then the queue in its order. The first one without room stops all behind it.
func (e *Engine) scheduleWaiting(budget *int) (moved bool) {
	if e.arrived > 0 {
		moved = e.admitLoaded(budget)
	}
	for e.waiting.len() > 0 && *budget > 0 && len(e.running) < e.cfg.MaxSeqs {
		r := e.waiting.front()
		if !e.admit(r, budget) {
			return moved
		}
		e.waiting.pop()
		moved = true
		if e.dead != nil {
			return moved
		}
	}
	return moved
}

// admitLoaded runs requests whose blocks a peer filled, or, by policy, sends those whose load failed to
// prefill here. They need new blocks only for what the peer left to be computed here.
func (e *Engine) admitLoaded(budget *int) (moved bool) {
	keep := e.loading[:0]
	for _, r := range e.loading {
		n := min(len(r.tokens)-r.loadedTo(), *budget)
		short := r.failed == nil && e.blocksFor(r.loadedTo()+n)-len(r.table) > e.pool.free
		if r.state != loaded || *budget == 0 || len(e.running) == e.cfg.MaxSeqs || short {
			keep = append(keep, r)
			continue
		}
		moved = true
		e.arrived--
		if r.failed != nil {
			e.recompute(r)
			continue
		}
		e.promote(r)
		e.grow(r, n)
		e.start(r, n, budget)
	}
	clear(e.loading[len(keep):])
	e.loading = keep
	return moved
}

// promote caches what a peer filled.
func (e *Engine) promote(r *request) {
	r.received = r.local + r.external
	r.computed = r.loadedTo()
	e.commit(r, r.received/e.cfg.BlockSize)
	r.noteHit(r.received, e.now)
}

// loadedTo is how many tokens need not be computed once the peer's blocks are there. The last one is computed
// again, for its logits.
func (r *request) loadedTo() int { return min(r.local+r.external, len(r.tokens)-1) }

// start makes r run with its first n tokens; its table has room for them.
func (e *Engine) start(r *request, n int, budget *int) {
	r.state = running
	e.running = append(e.running, r)
	e.run(r, n, budget)
}

// admit gives the head of the queue its blocks, cached ones first, and lets it run, or starts the load of its
// remote KV. False: there is no room.
func (e *Engine) admit(r *request, budget *int) bool {
	e.hits = e.lookup(r)
	local := len(e.hits) * e.cfg.BlockSize
	external := r.promised(local)
	total, n := local+external, 0
	if external == 0 {
		n = min(len(r.tokens)-local, *budget)
	}
	if !e.fits(r, total+n, external > 0) {
		return false
	}
	e.pool.touch(e.hits)
	e.pool.touch(e.beside)
	r.table = append(r.table[:0], e.hits...)
	r.beside = append(r.beside[:0], e.beside...)
	r.committed = len(e.hits)
	r.table = e.pool.take(r.table, max(0, e.blocksFor(total+n)-len(r.table)))
	e.countLookup(r, local, external)
	r.local, r.external = local, external
	if external > 0 {
		e.park(r)
		return true
	}
	e.decline(r)
	r.computed = local
	r.noteHit(local, e.now)
	e.start(r, n, budget)
	return true
}

// lookup finds the cached blocks of r. One token at least is left to compute: its logits are wanted.
func (e *Engine) lookup(r *request) []int32 {
	e.beside, r.junction = e.beside[:0], 0
	if r.skipRead {
		return e.hits[:0]
	}
	n := (len(r.tokens) - 1) / e.cfg.BlockSize
	hits := e.pool.match(e.hits[:0], r.hashes[:n])
	if len(e.groups.thin) == 0 {
		return hits
	}
	return hits[:e.narrow(r, len(hits))]
}

// fits says whether r may take what it needs. A prompt is admitted only if all of it fits, though its first
// chunk needs less; a load must leave alone what the prompts being computed will still need.
func (e *Engine) fits(r *request, tokens int, load bool) bool {
	idle := e.pool.idle(e.hits) + e.pool.idle(e.beside)
	if load {
		return e.blocksFor(tokens)-len(e.hits)+idle <= e.pool.free-e.reserved()
	}
	return e.blocksFor(len(r.tokens))-len(e.hits)+idle <= e.pool.free
}

// reserved is the number of blocks that prompts in computation and loads still have to take.
func (e *Engine) reserved() int {
	n := 0
	for _, r := range e.running {
		if r.computed+r.chunk < len(r.tokens) {
			n += e.blocksFor(len(r.tokens)) - len(r.table)
		}
	}
	for _, r := range e.loading {
		n += e.blocksFor(len(r.tokens)) - len(r.table)
	}
	return n
}

func (e *Engine) countLookup(r *request, local, external int) {
	if r.preempts > 0 {
		return
	}
	if !e.cfg.NoLoad {
		// Also for who has no transfer: the connector is asked.
		e.counts.ExternalQueries += uint64(len(r.tokens) - local)
		e.counts.ExternalHits += uint64(external)
	}
	if r.skipRead {
		return
	}
	e.counts.PrefixQueries += uint64(len(r.tokens))
	e.counts.PrefixHits += uint64(local)
}
