package kv

import (
	"maps"
	"slices"
	"time"
)

// twin is an Index that anyone can see to be right: it remembers what each holder was told and walks it block by block.
type twin struct {
	chain   Chain
	holders map[Holder]map[EngineHash]*twinBlock
	guesses []twinGuess // in the order they were made
}

type twinBlock struct {
	key       Key
	parent    EngineHash
	hasParent bool
	copies    map[twinPlace]int
}

type twinPlace struct {
	tier  Tier
	group int
}

type twinGuess struct {
	holder Holder
	keys   []Key
	until  time.Time
}

func newTwin(c Chain) *twin {
	return &twin{chain: c, holders: map[Holder]map[EngineHash]*twinBlock{}}
}

func (w *twin) blocks(h Holder) map[EngineHash]*twinBlock {
	if w.holders[h] == nil {
		w.holders[h] = map[EngineHash]*twinBlock{}
	}
	return w.holders[h]
}

func (w *twin) apply(h Holder, b *Batch) (a Applied) {
	for i := range b.Events {
		switch e := &b.Events[i]; e.Kind {
		case Stored:
			w.store(h, e, &a)
		case Removed:
			for _, hash := range e.Hashes {
				a.Removed += w.remove(h, hash, twinPlace{e.Tier, e.Group})
			}
		case Cleared:
			a.Removed += w.clear(h, e.Tier)
		}
		w.sweep(h)
	}
	return a
}

func (w *twin) store(h Holder, e *Event, a *Applied) {
	kinds := []string{"", "unknown", "full_attention", "mla_attention", "sink_full_attention"}
	if e.BlockSize != w.chain.BlockSize() || len(e.Tokens) != e.BlockSize*len(e.Hashes) || !slices.Contains(kinds, e.SpecKind) {
		a.Skipped += len(e.Hashes)
		return
	}
	parent, key, hasParent := e.Parent, w.chain.Root(e.LoRA, e.Salt), e.HasParent
	for i, hash := range e.Hashes {
		if hasParent {
			before := w.blocks(h)[parent]
			if before == nil {
				a.Orphans += len(e.Hashes) - i
				return
			}
			key = before.key
		}
		key = w.chain.Append(nil, key, e.Tokens[i*e.BlockSize:(i+1)*e.BlockSize])[0]
		one := w.blocks(h)[hash]
		if one == nil {
			one = &twinBlock{key: key, parent: parent, hasParent: hasParent, copies: map[twinPlace]int{}}
			w.blocks(h)[hash] = one
		}
		if one.key != key {
			a.Skipped += len(e.Hashes) - i
			return
		}
		one.copies[twinPlace{e.Tier, e.Group}]++
		a.Stored++
		w.confirm(h, key)
		parent, hasParent = hash, true
	}
}

func (w *twin) remove(h Holder, hash EngineHash, place twinPlace) int {
	if one := w.blocks(h)[hash]; one != nil && one.copies[place] > 0 {
		one.copies[place]--
		if one.copies[place] == 0 {
			delete(one.copies, place)
		}
		return 1
	}
	return 0
}

func (w *twin) clear(h Holder, t Tier) (blocks int) {
	if t == GPU {
		w.guesses = slices.DeleteFunc(w.guesses, func(g twinGuess) bool { return g.holder == h })
	}
	for _, one := range w.blocks(h) {
		n := len(one.copies)
		maps.DeleteFunc(one.copies, func(p twinPlace, _ int) bool { return p.tier == t })
		if len(one.copies) < n {
			blocks++
		}
	}
	w.sweep(h)
	return blocks
}

// sweep drops blocks without copies, unless a block with copies hangs under them.
func (w *twin) sweep(h Holder) {
	blocks := w.blocks(h)
	needed := map[EngineHash]bool{}
	for hash, one := range blocks {
		for one != nil && len(one.copies) > 0 && !needed[hash] {
			needed[hash] = true
			for one.hasParent {
				hash, one = one.parent, blocks[one.parent]
				needed[hash] = true
			}
		}
	}
	maps.DeleteFunc(blocks, func(hash EngineHash, _ *twinBlock) bool { return !needed[hash] })
}

func (w *twin) forget(h Holder) {
	delete(w.holders, h)
	w.guesses = slices.DeleteFunc(w.guesses, func(g twinGuess) bool { return g.holder == h })
}

func (w *twin) speculate(h Holder, keys []Key, until time.Time) {
	if len(keys) == 0 || w.depthOf(h, keys) == len(keys) {
		return
	}
	for i, g := range w.guesses {
		if g.holder == h && slices.Equal(g.keys, keys) {
			if until.After(g.until) {
				w.guesses[i].until = until
			}
			return
		}
	}
	w.guesses = append(w.guesses, twinGuess{h, keys, until})
}

func (w *twin) confirm(h Holder, key Key) {
	w.guesses = slices.DeleteFunc(w.guesses, func(g twinGuess) bool { return g.holder == h && g.keys[len(g.keys)-1] == key })
}

func (w *twin) expire(now time.Time) {
	w.guesses = slices.DeleteFunc(w.guesses, func(g twinGuess) bool { return !now.Before(g.until) })
}

// depthOf is what h has by its events.
func (w *twin) depthOf(h Holder, keys []Key) (n int) {
	for n < len(keys) && w.has(h, keys[n]) {
		n++
	}
	return n
}

// has reports whether h has a block of that content and, by the engine's own names, all blocks before it.
func (w *twin) has(h Holder, key Key) bool {
	for _, one := range w.blocks(h) {
		if one.key == key && w.whole(h, one) {
			return true
		}
	}
	return false
}

func (w *twin) whole(h Holder, one *twinBlock) bool {
	for len(one.copies) > 0 {
		if !one.hasParent {
			return true
		}
		one = w.blocks(h)[one.parent]
	}
	return false
}

// depth is what Match must say of h.
func (w *twin) depth(h Holder, keys []Key) int32 {
	n := w.depthOf(h, keys)
	for _, g := range w.guesses {
		if g.holder == h {
			n = max(n, w.shared(g.keys, keys))
		}
	}
	return int32(n)
}

func (w *twin) shared(a, b []Key) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

func (w *twin) memberships() (n int) {
	for _, blocks := range w.holders {
		for _, one := range blocks {
			if len(one.copies) > 0 {
				n++
			}
		}
	}
	return n
}
