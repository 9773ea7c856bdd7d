package enginesim

import (
	"fmt"
	"slices"
	"time"

	"tandem/internal/kv"
)

// A request's life:
//
//	                 +------------------ preempted ------------------+
//	                 v                                               |
//	Add -> waiting --+--------------------------------> running -----+--> gone
//	                 |                                     ^         |
//	                 +-> loading -> loaded ----------------+         +--> leased -> gone    (do_remote_decode)
//	                 |      |
//	                 |      +-> (aborted) unread -> gone             blocks stay held until the read ends
//	                 +-> lost -> (aborted) leaked                    a load that nobody performs
type state uint8

const (
	waiting state = iota
	loading
	loaded
	lost
	running
	leased
	unread
	gone
)

// request is one sequence in the engine.
type request struct {
	id       string
	seq      uint64
	state    state
	tokens   []uint32        // the prompt, then the output
	hashes   []kv.EngineHash // of the full blocks of tokens
	table    []int32         // block table
	prompt   int
	maxOut   int
	minOut   int
	stops    []uint32
	ignore   bool // EOS
	skipRead bool
	salt     string
	lora     string
	extra    uint64 // in each block hash
	root     uint64 // of contents
	seed     uint64
	transfer *Transfer
	remote   bool // came with do_remote_prefill

	computed  int // tokens whose KV is in the table
	chunk     int // tokens of this step
	committed int // leading blocks of the table that are cached under their hash
	preempts  int
	hit       int // usage's cached tokens: computed when first scheduled, -1 before
	local     int // of these, from our cache
	external  int // of these, from the peer

	attended uint64 // state after the first folded blocks
	folded   int
	received int // tokens whose KV came from a peer: not computed again

	failed error         // of the load
	reads  int           // blocks that the load writes, the last of the table
	beats  bool          // its lease on the peer is renewed
	expiry time.Duration // of our lease for the peer
	out    TransferOut   // what the peer is told
}

// usageCached is usage's cached_tokens. On D the number that P sent with the params goes over ours.
func (r *request) usageCached() int {
	if r.remote && r.transfer.PrefillCached.Present && !r.transfer.PrefillCached.Null {
		return r.transfer.PrefillCached.V
	}
	return r.hit
}

// queue is the waiting queue; both ends are cheap as long as little is put in front.
type queue struct {
	items []*request
	head  int
}

func (q *queue) len() int             { return len(q.items) - q.head }
func (q *queue) front() *request      { return q.items[q.head] }
func (q *queue) push(r *request)      { q.items = append(q.items, r) }
func (q *queue) all() []*request      { return q.items[q.head:] }
func (q *queue) remove(i int)         { q.items = slices.Delete(q.items, q.head+i, q.head+i+1) }
func (q *queue) index(r *request) int { return slices.Index(q.all(), r) }

func (q *queue) pop() {
	q.items[q.head] = nil
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	} else if q.head >= 256 && q.head > len(q.items)/2 {
		q.items, q.head = slices.Delete(q.items, 0, q.head), 0
	}
}

func (q *queue) unshift(r *request) {
	if q.head > 0 {
		q.head--
		q.items[q.head] = r
		return
	}
	q.items = slices.Insert(q.items, 0, r)
}

// Add queues a request. The errors are ErrLength, which the API layer answers with 400, ErrDuplicate and ErrDead.
func (e *Engine) Add(now time.Duration, q *Request) error {
	switch {
	case e.dead != nil:
		return ErrDead
	case len(q.Prompt) == 0 || len(q.Prompt) >= e.cfg.MaxModelLen:
		return fmt.Errorf("%w: %d tokens, at most %d", ErrLength, len(q.Prompt), e.cfg.MaxModelLen-1)
	case e.reqs[q.ID] != nil || e.held[q.ID] != nil:
		return ErrDuplicate
	}
	r := e.newRequest(q)
	e.reqs[r.id] = r
	e.waiting.push(r)
	e.arrive(now, r)
	return nil
}

// newRequest copies q into state that is used again and again.
func (e *Engine) newRequest(q *Request) *request {
	r := e.idleRequest()
	e.seq++
	*r = request{id: q.ID, seq: e.seq, hit: -1, prompt: len(q.Prompt), transfer: q.Transfer,
		tokens: append(r.tokens[:0], q.Prompt...), hashes: r.hashes[:0], table: r.table[:0], stops: append(r.stops[:0], q.StopIDs...),
		minOut: q.MinTokens, ignore: q.IgnoreEOS, skipRead: q.SkipReadCache, salt: q.Salt, lora: q.LoRA, seed: q.Seed, root: e.root}
	r.maxOut = q.MaxTokens
	if r.maxOut <= 0 {
		r.maxOut = e.cfg.MaxModelLen
	}
	if r.lora != "" {
		r.extra = mixString(0, r.lora)
		r.root = mixString(e.root, r.lora)
	}
	r.attended = r.root
	r.rehash(e)
	return r
}

func (e *Engine) idleRequest() *request {
	n := len(e.spare)
	if n == 0 {
		return new(request)
	}
	r := e.spare[n-1]
	e.spare = e.spare[:n-1]
	return r
}

// rehash names the full blocks of tokens that have no hash yet.
func (r *request) rehash(e *Engine) {
	size := e.cfg.BlockSize
	for i := len(r.hashes); (i+1)*size <= len(r.tokens); i++ {
		parent, extra := e.none, r.extra
		if i > 0 {
			parent = uint64(r.hashes[i-1])
		} else if r.salt != "" {
			extra = mixString(extra+1, r.salt)
		}
		r.hashes = append(r.hashes, hashBlock(parent, r.tokens[i*size:(i+1)*size], extra))
	}
}

// Step runs one scheduler step: schedule, compute, sample.
func (e *Engine) Step(now time.Duration) Step {
	e.open(now)
	if e.dead == nil {
		e.failLoads()
		moved := e.schedule()
		e.talk(now)
		if e.dead == nil {
			e.step.Idle = !e.compute(now) && !moved
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

// scheduleRunning gives each running request its next tokens, in order. Whoever finds no block takes those of the last one, or gives up its own.
func (e *Engine) scheduleRunning(budget *int) (preempted bool) {
	for i := 0; i < len(e.running) && *budget > 0; i++ {
		r := e.running[i]
		n := min(len(r.tokens)-r.computed, *budget)
		for !e.grow(r, n) {
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
		return false
	}
	if need > 0 {
		r.table = e.pool.take(r.table, need)
	}
	return true
}

func (e *Engine) blocksFor(tokens int) int { return (tokens + e.cfg.BlockSize - 1) / e.cfg.BlockSize }

// preemptLast takes everything from the last running request and puts it at the head of the queue, to compute its prompt and output again.
func (e *Engine) preemptLast() *request {
	last := len(e.running) - 1
	r := e.running[last]
	e.running = e.running[:last]
	e.pool.release(r.table)
	r.forgetKV()
	r.preempts++
	r.state = waiting
	e.waiting.unshift(r)
	e.counts.Preemptions++
	return r
}

// forgetKV makes r a request that has nothing computed.
func (r *request) forgetKV() {
	r.table = r.table[:0]
	r.computed, r.committed, r.received = 0, 0, 0
	r.attended, r.folded = r.root, 0
}

// commit caches the first n blocks of r's table under their hashes and announces those that were not yet.
func (e *Engine) commit(r *request, n int) {
	from := r.committed
	if n <= from {
		return
	}
	for i := from; i < n; i++ {
		e.pool.cache(r.table[i], r.hashes[i])
	}
	r.committed = n
	if e.cfg.NoEvents {
		return
	}
	ev := kv.Event{Kind: kv.Stored, Hashes: r.hashes[from:n:n], Tokens: r.tokens[from*e.cfg.BlockSize : n*e.cfg.BlockSize : n*e.cfg.BlockSize],
		BlockSize: e.cfg.BlockSize, LoRA: r.lora, SpecKind: "full_attention"}
	if from > 0 {
		ev.HasParent, ev.Parent = true, r.hashes[from-1]
	} else {
		ev.Salt = r.salt
	}
	e.pool.events = append(e.pool.events, ev)
}

// scheduleWaiting admits requests while there are tokens, run slots and blocks: first those whose remote KV is there, then the queue in its order. The
// first one without room stops all behind it.
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

// admitLoaded runs requests whose blocks a peer filled, or, by policy, sends those whose load failed to prefill here. They need no new block.
func (e *Engine) admitLoaded(budget *int) (moved bool) {
	keep := e.loading[:0]
	for _, r := range e.loading {
		if r.state != loaded || *budget == 0 || len(e.running) == e.cfg.MaxSeqs {
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
		e.start(r, 1, budget)
	}
	clear(e.loading[len(keep):])
	e.loading = keep
	return moved
}

// promote caches what a peer filled. The last token is computed again, for its logits.
func (e *Engine) promote(r *request) {
	r.received = len(r.tokens)
	r.computed = len(r.tokens) - 1
	e.commit(r, len(r.tokens)/e.cfg.BlockSize)
	r.noteHit(len(r.tokens))
}

func (r *request) noteHit(n int) {
	if r.hit < 0 {
		r.hit = n
	}
}

// start makes r run with its first n tokens; its table has room for them.
func (e *Engine) start(r *request, n int, budget *int) {
	r.state = running
	e.running = append(e.running, r)
	e.run(r, n, budget)
}

// admit gives the head of the queue its blocks, cached ones first, and lets it run, or starts the load of its remote KV. False: there is no room.
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
	r.table = append(r.table[:0], e.hits...)
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
	r.noteHit(local)
	e.start(r, n, budget)
	return true
}

// lookup finds the cached blocks of r. One token at least is left to compute: its logits are wanted.
func (e *Engine) lookup(r *request) []int32 {
	if r.skipRead {
		return e.hits[:0]
	}
	n := (len(r.tokens) - 1) / e.cfg.BlockSize
	return e.pool.match(e.hits[:0], r.hashes[:n])
}

// fits says whether r may take what it needs. A prompt is admitted only if all of it fits, though its first chunk needs less; a load must leave alone what
// the prompts being computed will still need.
func (e *Engine) fits(r *request, tokens int, load bool) bool {
	idle := e.pool.idle(e.hits)
	if load {
		return e.blocksFor(tokens)-len(e.hits)+idle <= e.pool.free-e.reserved()
	}
	return e.blocksFor(len(r.tokens))-len(e.hits)+idle <= e.pool.free
}

// reserved is the number of blocks that prompts in computation still have to take.
func (e *Engine) reserved() int {
	n := 0
	for _, r := range e.running {
		if r.computed+r.chunk < len(r.tokens) {
			n += e.blocksFor(len(r.tokens)) - len(r.table)
		}
	}
	return n
}

func (e *Engine) countLookup(r *request, local, external int) {
	if r.preempts > 0 || r.skipRead {
		return
	}
	e.counts.PrefixQueries += uint64(len(r.tokens))
	e.counts.PrefixHits += uint64(local)
	if r.transfer != nil {
		e.counts.ExternalQueries += uint64(len(r.tokens) - local)
		e.counts.ExternalHits += uint64(external)
	}
}

// compute runs the model over the scheduled chunks, in their order: a later one may read blocks that an earlier one fills.
func (e *Engine) compute(now time.Duration) bool {
	if len(e.scheduled) == 0 {
		return false
	}
	var w work
	for _, r := range e.scheduled {
		w.add(r.computed, r.chunk)
	}
	e.step.Took = e.cfg.Cost.of(w)
	e.step.Prefill, e.step.Decode = w.prefill, w.decode
	ended := false
	for _, r := range e.scheduled {
		e.forward(r)
		if r.computed == len(r.tokens) {
			ended = e.sample(now+e.step.Took, r) || ended
		}
	}
	if ended {
		e.running = slices.DeleteFunc(e.running, func(r *request) bool { return r.state != running })
	}
	return true
}

// forward computes the KV of r's chunk on top of its table as it is found.
func (e *Engine) forward(r *request) {
	size := e.cfg.BlockSize
	end := r.computed + r.chunk
	pos := max(r.computed, r.received)
	e.fold(r, pos/size)
	for pos < end {
		b := &e.pool.blocks[r.table[pos/size]]
		stop := min(end, (pos/size+1)*size)
		from := b.content
		if pos%size == 0 {
			from = r.attended
		}
		b.content = stepTokens(from, r.tokens[pos:stop])
		pos = stop
		e.fold(r, pos/size)
	}
	r.computed, r.chunk = end, 0
}

// fold brings r's state to the end of its first n blocks.
func (e *Engine) fold(r *request, n int) {
	for ; r.folded < n; r.folded++ {
		r.attended = attend(r.attended, e.pool.blocks[r.table[r.folded]].content)
	}
}

// logits is the state that the next token is drawn from: everything in the table.
func (e *Engine) logits(r *request) uint64 {
	if r.computed%e.cfg.BlockSize == 0 {
		return r.attended
	}
	return attend(r.attended, e.pool.blocks[r.table[r.folded]].content)
}

// sample draws r's next token and ends r when it was the last.
func (e *Engine) sample(at time.Duration, r *request) (ended bool) {
	token := e.draw(r)
	r.tokens = append(r.tokens, token)
	r.rehash(e)
	out := len(r.tokens) - r.prompt
	e.counts.GenerationTokens++
	if out == 1 {
		e.countPrompt(r)
	}
	o := Output{ID: r.id, Token: token, First: out == 1, Prompt: r.prompt, Out: out, Cached: r.usageCached()}
	o.Reason, o.Stopped = e.stopped(r, token, out)
	if o.Reason != NotFinished {
		o.Finished = true
		o.Params = e.end(at, r, o.Reason)
	}
	e.step.Outputs = append(e.step.Outputs, o)
	return o.Finished
}

// draw samples; until min_tokens are there, ends of text are masked.
func (e *Engine) draw(r *request) uint32 {
	state := e.logits(r)
	masked := len(r.tokens)-r.prompt < r.minOut
	for try := 0; ; try++ {
		t := e.cfg.draw(state, r.seed, try)
		if !masked || try == 32 || !e.ends(r, t) {
			return t
		}
	}
}

func (e *Engine) ends(r *request, t uint32) bool {
	return !r.ignore && e.cfg.EOS > 0 && t == uint32(e.cfg.EOS) || slices.Contains(r.stops, t)
}

// stopped is vLLM's check_stop.
func (e *Engine) stopped(r *request, token uint32, out int) (reason Reason, byID bool) {
	switch {
	case out >= r.minOut && !r.ignore && e.cfg.EOS > 0 && token == uint32(e.cfg.EOS):
		return FinishStop, false
	case out >= r.minOut && slices.Contains(r.stops, token):
		return FinishStop, true
	case out >= r.maxOut || len(r.tokens) >= e.cfg.MaxModelLen:
		return FinishLength, false
	}
	return NotFinished, false
}

func (e *Engine) countPrompt(r *request) {
	e.counts.PromptTokens += uint64(r.prompt)
	e.counts.PromptLocal += uint64(r.local)
	e.counts.PromptExternal += uint64(r.external)
	e.counts.PromptComputed += uint64(max(0, r.prompt-r.local-r.external))
}

// end takes a finished request out of the engine. Its blocks go back, or, for a prefill, stay for the peer.
func (e *Engine) end(at time.Duration, r *request, why Reason) *TransferOut {
	e.counts.Finished[why]++
	delete(e.reqs, r.id)
	if r.transfer != nil && bool(r.transfer.DoRemoteDecode) && (why == FinishLength || why == FinishStop) {
		return e.lease(at, r)
	}
	e.drop(r)
	return nil
}

// drop gives r's blocks back and keeps its memory for another request, from the next step on.
func (e *Engine) drop(r *request) {
	e.pool.release(r.table)
	r.forgetKV()
	r.state = gone
	r.transfer = nil
	e.ended = append(e.ended, r)
}

// Abort ends a request without an output. Unknown ids, which finished ones are too, are ignored.
func (e *Engine) Abort(now time.Duration, id string) {
	r := e.reqs[id]
	if r == nil || e.dead != nil {
		return
	}
	delete(e.reqs, id)
	e.counts.Finished[FinishAbort]++
	e.hush(r)
	switch r.state {
	case running:
		e.running = slices.DeleteFunc(e.running, func(x *request) bool { return x == r })
		e.drop(r)
	case waiting:
		e.waiting.remove(e.waiting.index(r))
		e.abandon(r)
		e.drop(r)
	default:
		e.abortLoad(r)
	}
}
