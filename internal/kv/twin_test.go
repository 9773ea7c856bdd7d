package kv

import (
	"slices"
	"time"
)

// twin is an Index that anyone can see to be right: it remembers what each holder was told, as lists and sets, and looks every block up by itself.
type twin struct {
	chain   Chain
	holders map[Holder]*twinHolder
	guesses []twinGuess // in the order they were made
}

type twinHolder struct {
	blocks map[EngineHash]*twinBlock
	barren map[int]bool // groups that serve no prefix
}

type twinBlock struct {
	key    Key
	copies []twinCopies // in the order of their first
}

type twinCopies struct {
	tier  Tier
	group int
	n     int
}

type twinGuess struct {
	holder Holder
	keys   []Key
	until  time.Time
}

func newTwin(c Chain) *twin { return &twin{chain: c, holders: map[Holder]*twinHolder{}} }

func (w *twin) holder(h Holder) *twinHolder {
	if w.holders[h] == nil {
		w.holders[h] = &twinHolder{blocks: map[EngineHash]*twinBlock{}, barren: map[int]bool{}}
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
				a.Removed += w.remove(h, hash, e.Tier, e.Group)
			}
		case Cleared:
			a.Removed += w.clear(h, e.Tier)
		}
	}
	return a
}

func (w *twin) store(h Holder, e *Event, a *Applied) {
	own := w.holder(h)
	serving := slices.Contains([]string{"", "unknown", "full_attention", "mla_attention", "sink_full_attention"}, e.SpecKind)
	whole := len(e.Tokens) == e.BlockSize*len(e.Hashes)
	switch {
	case e.BlockSize == 0 && len(e.Tokens) == 0:
		w.join(own, e, a)
		return
	case e.Group != NoGroup && (!serving || e.SpecKind == "" && e.BlockSize == w.chain.BlockSize() && len(e.Tokens) > e.BlockSize*len(e.Hashes)):
		own.barren[e.Group] = true
		w.drop(own, func(c twinCopies) bool { return c.group == e.Group })
		a.Skipped += len(e.Hashes)
		return
	case e.BlockSize != w.chain.BlockSize() || !whole || !serving || own.barren[e.Group]:
		a.Skipped += len(e.Hashes)
		return
	}
	key := w.chain.Root(e.LoRA, e.Salt)
	if e.HasParent {
		before := own.blocks[e.Parent]
		if before == nil {
			a.Orphans += len(e.Hashes)
			return
		}
		key = before.key
	}
	for i, hash := range e.Hashes {
		key = w.chain.Append(nil, key, e.Tokens[i*e.BlockSize:(i+1)*e.BlockSize])[0]
		one := own.blocks[hash]
		if one == nil {
			one = &twinBlock{key: key}
			own.blocks[hash] = one
		}
		if one.key != key {
			a.Skipped += len(e.Hashes) - i
			return
		}
		one.add(e.Tier, e.Group)
		a.Stored++
		w.confirm(h, key)
	}
}

// join is a placeholder's way: what is known has one more copy.
func (w *twin) join(own *twinHolder, e *Event, a *Applied) {
	for _, hash := range e.Hashes {
		if one := own.blocks[hash]; one != nil {
			one.add(e.Tier, one.copies[0].group)
			a.Stored++
		} else {
			a.Skipped++
		}
	}
}

func (b *twinBlock) add(tier Tier, group int) {
	for i := range b.copies {
		if c := &b.copies[i]; c.tier == tier && c.group == group {
			c.n++
			return
		}
	}
	b.copies = append(b.copies, twinCopies{tier, group, 1})
}

func (w *twin) remove(h Holder, hash EngineHash, tier Tier, group int) int {
	own := w.holder(h)
	one := own.blocks[hash]
	if one == nil || own.barren[group] {
		return 0
	}
	i := slices.IndexFunc(one.copies, func(c twinCopies) bool { return c.tier == tier && c.group == group })
	if i < 0 {
		i = slices.IndexFunc(one.copies, func(c twinCopies) bool { return c.tier == tier && (c.group == NoGroup || group == NoGroup) })
	}
	if i < 0 {
		return 0
	}
	if one.copies[i].n--; one.copies[i].n == 0 {
		one.copies = slices.Delete(one.copies, i, i+1)
	}
	if len(one.copies) == 0 {
		delete(own.blocks, hash)
	}
	return 1
}

func (w *twin) clear(h Holder, t Tier) int {
	if t == GPU {
		w.guesses = slices.DeleteFunc(w.guesses, func(g twinGuess) bool { return g.holder == h })
	}
	return w.drop(w.holder(h), func(c twinCopies) bool { return c.tier == t })
}

// drop drops some copies and returns how many blocks had any.
func (w *twin) drop(own *twinHolder, which func(twinCopies) bool) (blocks int) {
	for hash, one := range own.blocks {
		n := len(one.copies)
		one.copies = slices.DeleteFunc(one.copies, which)
		if len(one.copies) < n {
			blocks++
		}
		if len(one.copies) == 0 {
			delete(own.blocks, hash)
		}
	}
	return blocks
}

func (w *twin) forget(h Holder) {
	delete(w.holders, h)
	w.guesses = slices.DeleteFunc(w.guesses, func(g twinGuess) bool { return g.holder == h })
}

func (w *twin) speculate(h Holder, keys []Key, until time.Time) {
	if len(keys) == 0 || w.has(h, keys) {
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

func (w *twin) has(h Holder, keys []Key) bool { return w.depthOf(h, keys) == len(keys) }

func (w *twin) confirm(h Holder, key Key) {
	w.guesses = slices.DeleteFunc(w.guesses, func(g twinGuess) bool { return g.holder == h && g.keys[len(g.keys)-1] == key })
}

func (w *twin) expire(now time.Time) {
	w.guesses = slices.DeleteFunc(w.guesses, func(g twinGuess) bool { return !now.Before(g.until) })
}

// sets returns the keys of h by group.
func (w *twin) sets(h Holder) map[int]map[Key]bool {
	sets := map[int]map[Key]bool{}
	for _, one := range w.holder(h).blocks {
		for _, c := range one.copies {
			if sets[c.group] == nil {
				sets[c.group] = map[Key]bool{}
			}
			sets[c.group][one.key] = true
		}
	}
	return sets
}

// inTier returns the keys of h in a tier.
func (w *twin) inTier(h Holder, t Tier) map[Key]bool {
	set := map[Key]bool{}
	for _, one := range w.holder(h).blocks {
		for _, c := range one.copies {
			if c.tier == t {
				set[one.key] = true
			}
		}
	}
	return set
}

// run returns how many leading keys are in set.
func (w *twin) run(set map[Key]bool, keys []Key) (n int) {
	for n < len(keys) && set[keys[n]] {
		n++
	}
	return n
}

// depthOf is what h has by its events: what all its groups have.
func (w *twin) depthOf(h Holder, keys []Key) int {
	sets := w.sets(h)
	if len(sets) == 0 {
		return 0
	}
	depth := len(keys)
	for _, set := range sets {
		depth = min(depth, w.run(set, keys))
	}
	return depth
}

// tierDepth is what h has in one tier, of what all its groups have.
func (w *twin) tierDepth(h Holder, t Tier, keys []Key) int32 {
	return int32(min(w.depthOf(h, keys), w.run(w.inTier(h, t), keys)))
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
	for _, own := range w.holders {
		n += len(own.blocks)
	}
	return n
}
