package core

import "github.com/tandem-router/tandem/internal/kv"

// Task is an engine's remaining work for one request. No client of a real engine can know it. Oracles use it
// to show the value of perfect knowledge.
type Task struct {
	ID       string
	Tokens   int  // prompt tokens and tokens generated so far
	Computed int  // tokens that are computed at the end of the step in progress
	Out      int  // upper bound of the tokens still to generate
	Blocks   int  // KV blocks held
	Waiting  bool // no blocks are held yet; the cache is looked up when the request is scheduled
	Loading  bool // the KV is being loaded, or is loaded but the request is not scheduled yet
}

// Tasks appends every live request: running ones, loading ones, then the queue, each in its order.
func (e *Engine) Tasks(dst []Task) []Task {
	for _, r := range e.queues.running {
		dst = append(dst, r.task())
	}
	for _, r := range e.loads.loading {
		t := r.task()
		t.Loading = true
		dst = append(dst, t)
	}
	for _, r := range e.queues.waiting.all() {
		t := r.task()
		t.Waiting = true
		dst = append(dst, t)
	}
	return dst
}

func (r *request) task() Task {
	return Task{
		ID: r.id, Tokens: len(r.text.tokens), Computed: r.done.computed,
		Out:    r.ask.maxOut - (len(r.text.tokens) - r.text.prompt),
		Blocks: len(r.blocks.table),
	}
}

// AppendHashes appends the engine's hashes of the full blocks of a prompt without salt or adapter. Engines
// with equal hash seeds and block sizes give equal hashes.
func (e *Engine) AppendHashes(dst []kv.EngineHash, prompt []uint32) []kv.EngineHash {
	parent := e.seeds.none
	for size := e.cfg.BlockSize; len(prompt) >= size; prompt = prompt[size:] {
		h := hashBlock(parent, prompt[:size], 0)
		dst = append(dst, h)
		parent = uint64(h)
	}
	return dst
}

// Cached returns how many leading blocks of hashes are cached.
func (e *Engine) Cached(hashes []kv.EngineHash) int {
	for i, h := range hashes {
		if e.pool.first(h) == 0 {
			return i
		}
	}
	return len(hashes)
}

// FreeBlocks returns how many blocks could be taken now, including cached blocks without a holder.
func (e *Engine) FreeBlocks() int { return e.pool.free }
