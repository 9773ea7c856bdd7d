package kv

import (
	"slices"
	"sync"
	"sync/atomic"
)

// aheads are the holders whose engines hash a block together with the first tokens behind the block. vLLM
// 0.33 does so with EAGLE or MTP and without a KV connector. Such an engine finds a block again only if the
// prompt continues with the same tokens. The index names blocks by their own tokens only. The engine may
// therefore not find the last block that a prompt shares, and Match does not count that block. The zero
// value has no holder. Safe for concurrent use.
type aheads struct {
	mu   sync.Mutex // held by writers
	them atomic.Pointer[[]Holder]
}

func (a *aheads) add(h Holder) {
	a.change(h, func(them []Holder) []Holder { return append(them, h) })
}

func (a *aheads) remove(h Holder) {
	a.change(h, func(them []Holder) []Holder { return them })
}

func (a *aheads) has(h Holder) bool {
	them := a.them.Load()
	return them != nil && slices.Contains(*them, h)
}

// change stores what next makes of a copy of the holders without h.
func (a *aheads) change(h Holder, next func([]Holder) []Holder) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var them []Holder
	if p := a.them.Load(); p != nil {
		them = slices.DeleteFunc(slices.Clone(*p), func(x Holder) bool { return x == h })
	}
	if them = next(them); len(them) == 0 {
		a.them.Store(nil)
		return
	}
	a.them.Store(&them)
}

// shorten takes the last block from the depth of each of the holders.
func (a *aheads) shorten(depth []int32) {
	them := a.them.Load()
	if them == nil {
		return
	}
	for _, h := range *them {
		if int(h) < len(depth) && depth[h] > 0 {
			depth[h]--
		}
	}
}
