package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
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
//	                 +-> lost -> (aborted) leaked                    no worker performs the load
//	                 +-> probing -> waiting                           a source has answered
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
	probing
)

// request is one sequence in the engine.
type request struct {
	id      string
	seq     uint64
	state   state
	text    requestTokens
	blocks  blockTables
	ask     asked
	content contents
	load    peerLoad

	done   progress
	cached cacheHits

	times times

	lease peerLease
}

// requestTokens holds the prompt, followed by the output.
type requestTokens struct {
	tokens []uint32 // the prompt, then the output
	prompt int
}

// asked holds the parameters of the request. They do not change.
type asked struct {
	maxOut   int
	minOut   int
	stops    []uint32
	ignore   bool // ignore_eos
	skipRead bool
	salt     string
	lora     string
	seed     uint64
	wanted   *wanted // constraints on the tokens, usually nil
	withheld int     // prompt tokens that the peer did not compute
	choices  int     // n, set on the first choice only
}

// contents identifies KV contents and hashes: the model, its adapter, and the blocks attended to so far.
type contents struct {
	extra    uint64 // mixed into each block hash
	root     uint64 // initial state
	attended uint64 // state after the first folded blocks
	folded   int
}

// blockTables holds the blocks of the request, in each kind of group.
type blockTables struct {
	hashes    []kv.EngineHash // of the full blocks
	table     []int32         // block table
	beside    []int32         // blocks of thin groups
	committed int             // leading blocks of the table that are cached under their hash
	offloaded int             // leading blocks that were offered to host memory
}

// cacheHits holds the tokens found in caches when the request was first scheduled.
type cacheHits struct {
	hit      int // usage's cached tokens; -1 until first scheduled
	local    int // the part of hit from this engine's cache
	junction int // blocks cached by full attention, if the thin groups can serve fewer; else 0
	external int // the part of hit from the peer
}

// progress is how much of the request has been computed.
type progress struct {
	computed int // tokens whose KV is in the table
	chunk    int // tokens computed in this step
	preempts int
}

// peerLoad is the load of the request's KV from a peer.
type peerLoad struct {
	transfer    *Transfer
	remote      bool          // the request arrived with do_remote_prefill
	received    int           // tokens whose KV was loaded: not computed again
	failed      error         // why the load failed
	reads       int           // blocks that the load writes: the last ones of the table
	asked       time.Duration // when the load was ordered
	descriptors int           // descriptors per transfer
	posting     time.Duration // time to post the descriptors
	beats       bool          // the lease on the peer gets heartbeats
	probed      bool          // the source was asked
}

// peerLease is what a finished prefill keeps for a peer.
type peerLease struct {
	ended  time.Duration // end of the step that finished the request, while leased
	expiry time.Duration // end of the lease
	out    TransferOut   // transfer params for the peer
}

// times holds the request's points in time.
type times struct {
	arrived, began time.Duration // arrival at the engine; first scheduled
	first, latest  time.Duration // first token; newest token
}

// usageCached is usage's cached_tokens. On D, the number that P sent in the params takes precedence.
func (r *request) usageCached() int {
	if r.load.remote && r.load.transfer.PrefillCached.Present && !r.load.transfer.PrefillCached.Null {
		return r.load.transfer.PrefillCached.V
	}
	return r.cached.hit
}

// queue is the waiting queue. pop is cheap, and so is unshift while few requests are put in front.
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

// Add queues a request. Its errors are ErrLength, which the API layer answers with 400, ErrDuplicate and
// ErrDead.
func (e *Engine) Add(now time.Duration, q *Request) error {
	switch {
	case e.life.dead != nil:
		return ErrDead
	case len(q.Prompt) == 0 || len(q.Prompt) >= e.cfg.MaxModelLen:
		return fmt.Errorf("%w: %d tokens, at most %d", ErrLength, len(q.Prompt), e.cfg.MaxModelLen-1)
	case e.known.reqs[q.ID] != nil || e.known.held[q.ID] != nil:
		return ErrDuplicate
	}
	r := e.newRequest(e.cfg.withhold(q))
	r.times.arrived = now
	e.known.reqs[r.id] = r
	e.queues.waiting.push(r)
	e.arrive(now, r)
	return nil
}

// newRequest copies q into a new or reused struct.
func (e *Engine) newRequest(q *Request) *request {
	r := e.memory.idleRequest()
	e.known.seq++
	*r = request{
		id: q.ID, seq: e.known.seq, text: requestTokens{
			prompt: len(q.Prompt),
			tokens: append(r.text.tokens[:0], q.Prompt...),
		},
		ask: asked{
			stops:  append(r.ask.stops[:0], q.StopIDs...),
			minOut: q.MinTokens, ignore: q.IgnoreEOS, skipRead: q.SkipReadCache, salt: q.Salt, lora: q.LoRA,
			seed: q.Seed, wanted: wantedOf(q), choices: q.Choices, withheld: e.cfg.Withhold,
		},
		content: contents{root: e.seeds.root},
		blocks: blockTables{
			hashes: r.blocks.hashes[:0], table: r.blocks.table[:0], beside: r.blocks.beside[:0],
		},
		cached: cacheHits{hit: -1}, load: peerLoad{transfer: q.Transfer},
	}
	r.ask.maxOut = q.MaxTokens
	if r.ask.maxOut <= 0 {
		r.ask.maxOut = e.cfg.MaxModelLen
	}
	if r.ask.lora != "" {
		r.content.extra = mixString(0, r.ask.lora)
		r.content.root = mixString(e.seeds.root, r.ask.lora)
		if q.Weights != "" {
			r.content.extra, r.content.root = mixString(r.content.extra, q.Weights),
				mixString(r.content.root, q.Weights)
		}
	}
	r.content.attended = r.content.root
	r.rehash(e)
	return r
}

func (e *memory) idleRequest() *request {
	n := len(e.spare)
	if n == 0 {
		return new(request)
	}
	r := e.spare[n-1]
	e.spare = e.spare[:n-1]
	return r
}

// rehash hashes the full blocks of tokens that have no hash yet.
func (r *request) rehash(e *Engine) {
	size := e.cfg.BlockSize
	for i := len(r.blocks.hashes); (i+1)*size <= len(r.text.tokens); i++ {
		parent, extra := e.seeds.none, r.content.extra
		if i > 0 {
			parent = uint64(r.blocks.hashes[i-1])
		} else if r.ask.salt != "" {
			extra = mixString(extra+1, r.ask.salt)
		}
		r.blocks.hashes = append(r.blocks.hashes, hashBlock(parent, r.text.tokens[i*size:(i+1)*size], extra))
	}
}

// forgetKV resets r to nothing computed.
func (r *request) forgetKV() {
	r.blocks.table = r.blocks.table[:0]
	r.done.computed = 0
	r.blocks.committed = 0
	r.load.received = 0
	r.content.attended, r.content.folded = r.content.root, 0
}

func (r *request) noteHit(n int, now time.Duration) {
	if r.cached.hit < 0 {
		r.cached.hit, r.times.began = n, now
	}
}

// end removes a finished request from the engine. It frees the blocks, or leases those of a prefill to the
// peer.
func (e *Engine) end(at time.Duration, r *request, why Reason) *TransferOut {
	e.counted.counts.Finished[why]++
	delete(e.known.reqs, r.id)
	if r.load.transfer != nil && bool(r.load.transfer.DoRemoteDecode) &&
		(why == FinishLength || why == FinishStop) {
		if e.cfg.MoRIIO != 0 {
			return e.endMoRIIO(at, r, why)
		}
		if e.cfg.Mooncake {
			e.endMooncake(at, r, why)
			return nil
		}
		return e.lease(at, r)
	}
	e.drop(r)
	return nil
}

// drop frees r's blocks and makes its struct reusable from the next step on.
func (e *Engine) drop(r *request) {
	e.vacate(r)
	r.state = gone
	r.load.transfer = nil
	e.memory.ended = append(e.memory.ended, r)
}

// vacate frees all blocks that r holds.
func (e *Engine) vacate(r *request) {
	e.pool.release(r.blocks.table)
	e.letGo(r)
	r.forgetKV()
}

// Abort ends a request without an output. It ignores unknown ids, including ids of finished requests. A
// prefill that the step in progress finishes is aborted too and leaves no lease: vLLM handles aborts after
// the model and before the scheduler (core.py, _process_aborts_queue).
func (e *Engine) Abort(now time.Duration, id string) {
	r := e.known.reqs[id]
	if e.life.dead != nil {
		return
	}
	if r == nil {
		if r = e.known.held[id]; r != nil && r.state == leased && now < r.lease.ended {
			e.unlease(r)
		}
		return
	}
	delete(e.known.reqs, id)
	e.counted.counts.Finished[FinishAbort]++
	e.leasing.hush(r)
	e.leasing.mooncake.aborted(r)
	switch r.state {
	case running:
		e.queues.running = slices.DeleteFunc(e.queues.running, func(x *request) bool { return x == r })
		e.drop(r)
	case waiting:
		e.queues.waiting.remove(e.queues.waiting.index(r))
		e.abandon(r)
		e.drop(r)
	default:
		e.abortLoad(r)
	}
}

// fetched returns the number of leading prompt tokens that are loaded from a prefill engine. D computes the
// last Config.Withhold tokens itself.
func (r *request) fetched() int {
	if r.text.prompt > r.ask.withheld {
		return r.text.prompt - r.ask.withheld
	}
	return r.text.prompt
}
