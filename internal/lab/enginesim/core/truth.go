package core

import "github.com/tandem-router/tandem/internal/kv"

// Task is what an engine has left to do for one request. Nobody outside of a real engine can know it: it is
// there for oracles, which show what perfect knowledge would be worth.
type Task struct {
	ID       string
	Tokens   int  // of the prompt and the answer so far
	Computed int  // the part that is computed when the step under way is over
	Out      int  // tokens that will still be generated, at most
	Blocks   int  // of KV memory that it holds
	Waiting  bool // it holds nothing yet, and its cached blocks are found when it is scheduled
	Loading  bool // its KV is on the way from a peer, or there but not looked at yet
}

// Tasks appends every request that has not ended: running ones, those that load, and the queue, each in its
// order.
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

// AppendHashes appends the engine's names of the full blocks of a prompt without salt or adapter. Engines of
// one hash seed and block size name them alike.
func (e *Engine) AppendHashes(dst []kv.EngineHash, prompt []uint32) []kv.EngineHash {
	parent := e.seeds.none
	for size := e.cfg.BlockSize; len(prompt) >= size; prompt = prompt[size:] {
		h := hashBlock(parent, prompt[:size], 0)
		dst = append(dst, h)
		parent = uint64(h)
	}
	return dst
}

// Cached is how many leading blocks of hashes are cached now.
func (e *Engine) Cached(hashes []kv.EngineHash) int {
	for i, h := range hashes {
		if e.pool.first(h) == 0 {
			return i
		}
	}
	return len(hashes)
}

// FreeBlocks is how many blocks could be taken now, cached ones that nobody holds included.
func (e *Engine) FreeBlocks() int { return e.pool.free }
