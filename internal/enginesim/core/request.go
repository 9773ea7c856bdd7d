package core

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
	beside   []int32         // blocks of thin groups that it holds
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
	wanted   *wanted // what the tokens must be like, nil mostly
	transfer *Transfer
	remote   bool // came with do_remote_prefill
	withheld int  // prompt tokens that the peer did not compute

	computed  int // tokens whose KV is in the table
	chunk     int // tokens of this step
	committed int // leading blocks of the table that are cached under their hash
	preempts  int
	hit       int // usage's cached tokens: computed when first scheduled, -1 before
	local     int // of these, from our cache
	junction  int // blocks that full attention had cached where the thin groups could serve fewer
	external  int // of these, from the peer

	attended uint64 // state after the first folded blocks
	folded   int
	received int // tokens whose KV came from a peer: not computed again

	arrived, began time.Duration // at the engine, and when it was first run
	first, latest  time.Duration // token
	choices        int           // n, told by the first of them

	failed error         // of the load
	reads  int           // blocks that the load writes, the last of the table
	asked  time.Duration // when it was ordered
	beats  bool          // its lease on the peer is renewed
	ended  time.Duration // end of the step that finished it, while leased
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

// Add queues a request. The errors are ErrLength, which the API layer answers with 400, ErrDuplicate and
// ErrDead.
func (e *Engine) Add(now time.Duration, q *Request) error {
	switch {
	case e.dead != nil:
		return ErrDead
	case len(q.Prompt) == 0 || len(q.Prompt) >= e.cfg.MaxModelLen:
		return fmt.Errorf("%w: %d tokens, at most %d", ErrLength, len(q.Prompt), e.cfg.MaxModelLen-1)
	case e.reqs[q.ID] != nil || e.held[q.ID] != nil:
		return ErrDuplicate
	}
	r := e.newRequest(e.cfg.withhold(q))
	r.arrived = now
	e.reqs[r.id] = r
	e.waiting.push(r)
	e.arrive(now, r)
	return nil
}

// newRequest copies q into state that is used again and again.
func (e *Engine) newRequest(q *Request) *request {
	r := e.idleRequest()
	e.seq++
	*r = request{
		id: q.ID, seq: e.seq, hit: -1, prompt: len(q.Prompt), transfer: q.Transfer,
		tokens: append(r.tokens[:0], q.Prompt...), hashes: r.hashes[:0], table: r.table[:0], beside: r.beside[:0],
		stops:  append(r.stops[:0], q.StopIDs...),
		minOut: q.MinTokens, ignore: q.IgnoreEOS, skipRead: q.SkipReadCache, salt: q.Salt, lora: q.LoRA,
		seed: q.Seed, root: e.root, wanted: wantedOf(q), choices: q.Choices,
		withheld: e.cfg.Withhold,
	}
	r.maxOut = q.MaxTokens
	if r.maxOut <= 0 {
		r.maxOut = e.cfg.MaxModelLen
	}
	if r.lora != "" {
		r.extra = mixString(0, r.lora)
		r.root = mixString(e.root, r.lora)
		if q.Weights != "" {
			r.extra, r.root = mixString(r.extra, q.Weights), mixString(r.root, q.Weights)
		}
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

// forgetKV makes r a request that has nothing computed.
func (r *request) forgetKV() {
	r.table = r.table[:0]
	r.computed = 0
	r.committed = 0
	r.received = 0
	r.attended, r.folded = r.root, 0
}

func (r *request) noteHit(n int, now time.Duration) {
	if r.hit < 0 {
		r.hit, r.began = n, now
	}
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
	e.vacate(r)
	r.state = gone
	r.transfer = nil
	e.ended = append(e.ended, r)
}

// vacate gives back all that r holds.
func (e *Engine) vacate(r *request) {
	e.pool.release(r.table)
	e.letGo(r)
	r.forgetKV()
}

// Abort ends a request without an output. Unknown ids, which finished ones are too, are ignored. A prefill
// that the step in progress finishes is aborted all the same and leaves no lease: vLLM looks at its aborts
// between the model and the scheduler (core.py, _process_aborts_queue).
func (e *Engine) Abort(now time.Duration, id string) {
	r := e.reqs[id]
	if e.dead != nil {
		return
	}
	if r == nil {
		if r = e.held[id]; r != nil && r.state == leased && now < r.ended {
			e.unlease(r)
		}
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
