package connector

import (
	"slices"
	"sync"
	"time"
)

// Reply is the transfer params of one prefill. They can be used once, by one EditDecode, and there is no
// other way to them: sent twice, or late, they are answered with 200 and wrong text, and the decode engine
// keeps the wrong blocks under the right hashes. Safe for concurrent use.
type Reply struct {
	at           time.Time
	promptTokens int
	blockSize    int

	mu     sync.Mutex // guards the following
	params []byte
	state  state
	groups int // KV cache groups in the params, once they have been read
}

// state is how much of a reply's one life is left.
//
//	fresh --EditDecode--> taken --Unsent--> unsent --GiveBack--> spent
//	fresh --GiveBack----> spent
type state uint8

const (
	fresh  state = iota // P holds the blocks, no leg has the params
	taken               // a decode leg has them
	unsent              // that leg never left: they may be given back, but not used
	spent               // given back
)

// NewReply keeps a copy of params, the raw kv_transfer_params of leg 1's answer, which arrived at the time
// at. promptTokens is what the prefill engine counted and blockSize its block size; 0 when unknown.
func NewReply(params []byte, at time.Time, promptTokens, blockSize int) *Reply {
	return &Reply{at: at, promptTokens: promptTokens, blockSize: blockSize, params: slices.Clone(params)}
}

// None reports whether the prefill engine gave no params at all: it holds no blocks for this request.
func (r *Reply) None() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.params) == 0 || string(r.params) == "null"
}

// WholeBlocks returns how many tokens of the prompt are in whole blocks, which a prefill engine that keeps
// prefixes has in its cache then. It returns -1 where that is not known: before the params have been taken,
// or where the model has several KV cache groups, which do not all keep the same.
func (r *Reply) WholeBlocks() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.groups != 1 || r.blockSize <= 0 || r.promptTokens <= 0 {
		return -1
	}
	return r.promptTokens / r.blockSize * r.blockSize
}

// Unsent says that the leg which took the params provably never reached an engine, as when its connection was
// refused. They can be given back then; no other decode leg gets them.
func (r *Reply) Unsent() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state == taken {
		r.state = unsent
	}
}

// take checks the params with check, which also returns the params to send. Then it moves them out.
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
// stopped at any line: the age that counts is the one when the first byte of the decode leg leaves.
func (r *Reply) Expired(use Use) bool { return use.Now.Sub(r.at) > use.margin() }

func (u Use) margin() time.Duration {
	if u.Margin > 0 {
		return u.Margin
	}
	return 15 * time.Second
}
