package connector

import (
	"slices"
	"sync"
	"time"
)

// Reply holds the transfer params of one prefill. One EditDecode can use them once; there is no other access.
// If they are sent twice, or late, the answer is 200 with wrong text, and the decode engine keeps wrong
// blocks under right hashes. Safe for concurrent use.
type Reply struct {
	at           time.Time
	promptTokens int
	blockSize    int

	mu     sync.Mutex // guards the following
	params []byte
	state  state
	groups int // KV cache groups in the params, set when the params are taken
}

// state is the state of a reply.
//
//	fresh --EditDecode--> taken --Unsent--> unsent --GiveBack--> spent
//	fresh --GiveBack----> spent
type state uint8

const (
	fresh  state = iota // P holds the blocks, no leg has the params
	taken               // a decode leg has the params
	unsent              // that leg reached no engine: the params may be given back, but not used
	spent               // the params were given back
)

// NewReply copies params, the raw kv_transfer_params of leg 1's answer, which arrived at the time at.
// promptTokens is the prefill engine's count, and blockSize its block size; 0: unknown.
func NewReply(params []byte, at time.Time, promptTokens, blockSize int) *Reply {
	return &Reply{at: at, promptTokens: promptTokens, blockSize: blockSize, params: slices.Clone(params)}
}

// None reports whether the prefill engine returned no params: it holds no blocks for this request.
func (r *Reply) None() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.params) == 0 || string(r.params) == "null"
}

// WholeBlocks returns the number of prompt tokens in whole blocks. A prefill engine with prefix caching has
// them in its cache. WholeBlocks returns -1 if the number is unknown: before the params are taken, or with
// several KV cache groups, which do not all keep the same blocks.
func (r *Reply) WholeBlocks() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.groups != 1 || r.blockSize <= 0 || r.promptTokens <= 0 {
		return -1
	}
	return r.promptTokens / r.blockSize * r.blockSize
}

// Unsent records that the leg with the params provably never reached an engine, for example because its
// connection was refused. The params can then be given back, but no other decode leg gets them.
func (r *Reply) Unsent() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state == taken {
		r.state = unsent
	}
}

// take checks the params with check, which returns the params to send. Then it marks them as taken.
func (r *Reply) take(use Use, check func(params []byte) ([]byte, error)) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.state != fresh && !(use.GiveBack && r.state == unsent):
		return nil, ErrTaken
	case !use.GiveBack && r.Expired(use):
		return nil, ErrExpired
	}
	out, err := check(r.params)
	if err != nil {
		return nil, err
	}
	r.state = taken
	if use.GiveBack {
		r.state, r.params = spent, nil
	}
	return out, nil
}

// Expired reports whether the params are too old to be used. Connecting takes time, and a process can be
// stopped at any line. So the age is measured when the first byte of the decode leg is sent.
func (r *Reply) Expired(use Use) bool { return use.Now.Sub(r.at) > use.margin() }

func (u Use) margin() time.Duration {
	if u.Margin > 0 {
		return u.Margin
	}
	return 15 * time.Second
}
