package kv

import (
	"slices"
	"time"
)

// twin is an Index that is obviously right. It remembers what each holder was told, as lists and sets, and
// looks every block up separately.
type twin struct {
	chain   Chain
	holders map[Holder]*twinHolder
	guesses []twinGuess // in the order they were made
	now     time.Time
	life    time.Duration // of a copy in a store that announces no removals
}

type twinHolder struct {
	blocks  map[EngineHash]*twinBlock
	groups  map[int]*twinGroup
	order   []int         // of the groups, the one that was told of first is first
	named   bool          // its engine names groups
	anew    bool          // it was just learnt what a thin group needs
	awaited []twinAwaited // told by a thin group of the batch before the block itself
	ages    []twinAge     // copies that are dropped at a time
	removes map[Tier]bool // it has announced removals from there
}

type twinAge struct {
	twinAwaited
	until time.Time
}

// add counts one more copy of a block.
func (w *twin) add(own *twinHolder, hash EngineHash, tier Tier, group int) {
	own.blocks[hash].add(tier, group)
	if tier > CPU && !own.removes[tier] {
		own.ages = append(own.ages, twinAge{twinAwaited{hash, tier, group}, w.now.Add(w.life)})
	}
}

func (own *twinHolder) announces(tier Tier) {
	own.removes[tier] = true
	own.ages = slices.DeleteFunc(own.ages, func(a twinAge) bool { return a.tier == tier })
}

type twinGroup struct {
	thin          bool
	size          int // tokens of a thin group's blocks
	stride, least int // of a thin group: see tail
}

// put sets what is known of a group.
func (own *twinHolder) put(group int, g twinGroup) {
	if !slices.Contains(own.order, group) {
		own.order = append(own.order, group)
	}
	own.groups[group] = &g
}

type twinAwaited struct {
	hash  EngineHash
	tier  Tier
	group int
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
	asked  int
	until  time.Time
}

func newTwin(c Chain) *twin { return &twin{chain: c, holders: map[Holder]*twinHolder{}} }

func (w *twin) holder(h Holder) *twinHolder {
	if w.holders[h] == nil {
		w.holders[h] = newTwinHolder()
	}
	return w.holders[h]
}

func newTwinHolder() *twinHolder {
	return &twinHolder{
		blocks: map[EngineHash]*twinBlock{}, groups: map[int]*twinGroup{}, removes: map[Tier]bool{},
	}
}

func (w *twin) apply(h Holder, b *Batch) (a Applied) {
	for i := range b.Events {
		switch e := &b.Events[i]; e.Kind {
		case Stored:
			w.store(h, e, &a)
		case Removed:
			w.holder(h).announces(e.Tier)
			for _, hash := range e.Hashes {
				a.Removed += w.remove(h, hash, e.Tier, e.Group)
			}
		case Cleared:
			if e.Tier == GPU {
				a.Removed += w.clear(h, CPU, GPU, Shared, Disk, Other)
			} else {
				a.Removed += w.clear(h, e.Tier)
			}
		}
	}
	w.holder(h).awaited = nil
	return a
}

func (w *twin) store(h Holder, e *Event, a *Applied) {
	own, before := w.holder(h), a.Stored
	group, content, names := w.judge(own, e)
	if own.anew {
		w.guesses = slices.DeleteFunc(w.guesses, func(g twinGuess) bool { return g.holder == h })
		own.anew = false
	}
	switch {
	case content:
		w.storeContent(h, e, group, a)
	case names:
		for _, hash := range e.Hashes {
			if one := own.blocks[hash]; one != nil {
				w.add(own, hash, e.Tier, group)
				a.Stored++
			} else if e.Tier == GPU && own.groups[group].thin {
				own.awaited = append(own.awaited, twinAwaited{hash, e.Tier, group})
			}
		}
		a.Skipped += len(e.Hashes) - (a.Stored - before)
	default:
		a.Skipped += len(e.Hashes)
	}
}

// judge returns the group of a stored event, and whether its blocks are known by their content or by their
// names, if at all.
func (w *twin) judge(own *twinHolder, e *Event) (group int, content, names bool) {
	named := e.Group != NoGroup
	holder := e.BlockSize == 0 && len(e.Tokens) == 0
	group = e.Group
	switch {
	case named && !own.named && !holder:
		removes := own.removes
		*own = *newTwinHolder()
		own.removes = removes
		own.named = true
	case named && !own.named:
		group = NoGroup
	case !named && own.named:
		if len(own.groups) != 1 || !holder {
			return NoGroup, false, false
		}
		for group = range own.groups {
		}
	}
	kind := "thin"
	switch e.SpecKind {
	case "", "unknown":
		kind = "unsaid"
	case "full_attention", "mla_attention", "sink_full_attention":
		kind = "whole"
	case "cross_attention", "encoder_only_attention":
		return group, false, false
	}
	size := w.chain.BlockSize()
	whole := len(e.Hashes) > 0 && e.BlockSize > 0 && len(e.Tokens) == len(e.Hashes)*e.BlockSize
	fits := whole && e.BlockSize == size
	known := own.groups[group]
	if e.Tier != GPU || holder {
		tells := fits && !e.Bare && kind != "thin"
		switch {
		case known != nil:
			return group, tells && !known.thin, !tells || known.thin
		case tells && (!own.named || kind == "whole"):
			own.put(group, twinGroup{})
			return group, true, false
		}
		return group, false, false
	}
	switch {
	case !own.named:
		if fits && kind != "thin" {
			own.put(group, twinGroup{})
		}
		return group, fits && kind != "thin", false
	case kind == "thin" || kind == "unsaid" && known != nil && known.thin:
		w.thin(own, group, max(e.BlockSize, 1), e.BlockSize, e.Window, false)
		return group, false, true
	case e.BlockSize != size && (e.BlockSize < 1 || known != nil && !known.thin):
		return group, false, false
	case e.BlockSize != size:
		w.thin(own, group, e.BlockSize, e.BlockSize, 0, kind == "whole")
		return group, false, true
	case kind == "unsaid" && len(e.Tokens) > len(e.Hashes)*size:
		w.thin(own, group, size, size, 0, false)
		return group, false, true
	}
	if known != nil && known.thin {
		w.drop(own, func(c twinCopies) bool { return c.group == group })
		known = nil
	}
	if known == nil {
		own.put(group, twinGroup{})
	}
	return group, whole, false
}

// thin notes what a group needs that keeps some blocks only.
func (w *twin) thin(own *twinHolder, group, size, told, window int, all bool) {
	step := size
	for step%w.chain.BlockSize() != 0 {
		step += size
	}
	now := twinGroup{thin: true, size: told, stride: step / w.chain.BlockSize(), least: 1}
	for now.least*step < window-1 {
		now.least++
	}
	if all {
		now.least = 1 << 20
	}
	was := own.groups[group]
	switch {
	case was == nil:
	case !was.thin:
		w.drop(own, func(c twinCopies) bool { return c.group == group })
	case told < was.size || told == was.size && now.least == was.least:
		return
	}
	own.put(group, now)
	own.anew = true
}

func (w *twin) storeContent(h Holder, e *Event, group int, a *Applied) {
	own := w.holder(h)
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
		w.add(own, hash, e.Tier, group)
		a.Stored++
		w.confirm(h, key)
		for _, c := range own.awaited {
			if c.hash == hash {
				one.add(c.tier, c.group)
				a.Stored++
				a.Skipped--
			}
		}
		own.awaited = slices.DeleteFunc(own.awaited, func(c twinAwaited) bool { return c.hash == hash })
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
	if !own.named {
		group = NoGroup
	}
	one := own.blocks[hash]
	if one == nil {
		i := slices.IndexFunc(own.awaited, func(c twinAwaited) bool {
			return c.hash == hash && c.tier == tier && (c.group == group || group == NoGroup)
		})
		if i >= 0 {
			own.awaited = slices.Delete(own.awaited, i, i+1)
		}
		return 0
	}
	i := slices.IndexFunc(one.copies, func(c twinCopies) bool {
		return c.tier == tier && (c.group == group || group == NoGroup)
	})
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

func (w *twin) clear(h Holder, tiers ...Tier) int {
	if slices.Contains(tiers, GPU) {
		w.guesses = slices.DeleteFunc(w.guesses, func(g twinGuess) bool { return g.holder == h })
		w.holder(h).ages = nil
		w.holder(h).awaited = nil // every block lies in the GPU
	}
	return w.drop(w.holder(h), func(c twinCopies) bool { return slices.Contains(tiers, c.tier) })
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
	if g := w.guess(h, keys); g != nil {
		g.asked++
		if until.After(g.until) {
			g.until = until
		}
	}
}

func (w *twin) await(h Holder, keys []Key, until time.Time) {
	if g := w.guess(h, keys); g != nil {
		g.asked, g.until = 0, until
	}
}

// guess returns the guess that h has keys, a new one where there is none, nil where none is needed.
func (w *twin) guess(h Holder, keys []Key) *twinGuess {
	keys = w.whole(h, keys)
	if len(keys) == 0 || w.has(h, keys) {
		return nil
	}
	i := slices.IndexFunc(w.guesses,
		func(g twinGuess) bool { return g.holder == h && slices.Equal(g.keys, keys) })
	if i < 0 {
		i = len(w.guesses)
		w.guesses = append(w.guesses, twinGuess{holder: h, keys: keys})
	}
	return &w.guesses[i]
}

func (w *twin) whole(h Holder, keys []Key) []Key {
	for !w.ends(h, len(keys)) {
		keys = keys[:len(keys)-1]
	}
	return keys
}

func (w *twin) retract(h Holder, keys []Key) {
	keys = w.whole(h, keys)
	for i := range w.guesses {
		if g := &w.guesses[i]; g.holder == h && slices.Equal(g.keys, keys) && g.asked > 0 {
			if g.asked--; g.asked == 0 {
				w.guesses = slices.Delete(w.guesses, i, i+1)
			}
			return
		}
	}
}

func (w *twin) has(h Holder, keys []Key) bool {
	depth, some := w.wholeDepth(h, keys)
	return some && depth == len(keys)
}

// ends reports whether every thin group of h ends a block with our n-th.
func (w *twin) ends(h Holder, n int) bool {
	for _, g := range w.holder(h).groups {
		if g.thin && n%g.stride != 0 {
			return false
		}
	}
	return true
}

func (w *twin) hybrid(h Holder) bool {
	for _, g := range w.holder(h).groups {
		if g.thin {
			return true
		}
	}
	return false
}

func (w *twin) confirm(h Holder, key Key) {
	w.guesses = slices.DeleteFunc(w.guesses,
		func(g twinGuess) bool { return g.holder == h && g.keys[len(g.keys)-1] == key })
}

func (w *twin) expire(now time.Time) {
	w.now = now
	for h, own := range w.holders {
		for len(own.ages) > 0 && !now.Before(own.ages[0].until) {
			a := own.ages[0]
			own.ages = own.ages[1:]
			w.remove(h, a.hash, a.tier, a.group)
		}
	}
	w.guesses = slices.DeleteFunc(w.guesses, func(g twinGuess) bool { return !now.Before(g.until) })
}

// inGroup returns the keys of h in a group.
func (w *twin) inGroup(h Holder, group int) map[Key]bool {
	return w.keys(h, func(c twinCopies) bool { return c.group == group })
}

func (w *twin) keys(h Holder, which func(twinCopies) bool) map[Key]bool {
	set := map[Key]bool{}
	for _, one := range w.holder(h).blocks {
		if slices.ContainsFunc(one.copies, which) {
			set[one.key] = true
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

// depthOf is what h has by its events: what all its groups can serve.
func (w *twin) depthOf(h Holder, keys []Key) int {
	depth, some := w.wholeDepth(h, keys)
	if !some {
		return 0
	}
	return w.served(h, keys, depth)
}

// served returns behind how many of the first depth blocks of keys all thin groups of h can go on.
func (w *twin) served(h Holder, keys []Key, depth int) int {
	for ; depth > 0; depth-- {
		all := true
		for number, g := range w.holder(h).groups {
			all = all && (!g.thin || g.serves(w.inGroup(h, number), keys, depth))
		}
		if all {
			return depth
		}
	}
	return 0
}

// wholeDepth is what the whole groups of h have, false without any.
func (w *twin) wholeDepth(h Holder, keys []Key) (depth int, some bool) {
	depth = len(keys)
	for number, g := range w.holder(h).groups {
		if !g.thin {
			depth, some = min(depth, w.run(w.inGroup(h, number), keys)), true
		}
	}
	return depth, some
}

// below returns how many blocks of what h has lie in each lower tier: a block counts for the nearest copy
// that one of its names has. Of several groups that keep every block, the one that was told of first counts.
func (w *twin) below(h Holder, keys []Key) (b Below) {
	own := w.holder(h)
	at := slices.IndexFunc(own.order, func(group int) bool { return !own.groups[group].thin })
	if at < 0 {
		return b
	}
	for _, key := range keys[:w.depthOf(h, keys)] {
		var in [lowerTiers]bool
		for _, one := range own.blocks {
			if tier := one.nearest(own.order[at]); one.key == key && tier != GPU && tier != nowhere {
				in[tier-1] = true
			}
		}
		for tier, some := range in {
			if some {
				*b.In(Tier(tier + 1))++
			}
		}
	}
	return b
}

func (b *twinBlock) nearest(group int) Tier {
	at := nowhere
	for _, c := range b.copies {
		if c.group == group {
			at = min(at, c.tier)
		}
	}
	return at
}

// serves reports whether a request can go on behind the first depth blocks of keys.
func (g *twinGroup) serves(has map[Key]bool, keys []Key, depth int) bool {
	if depth%g.stride != 0 {
		return false
	}
	for i := range g.least {
		if at := depth - i*g.stride; at <= 0 {
			return true
		} else if !has[keys[at-1]] {
			return false
		}
	}
	return true
}

// depth is what Match must say of h.
func (w *twin) depth(h Holder, keys []Key) int32 {
	n := w.depthOf(h, keys)
	for _, g := range w.guesses {
		if shared := w.shared(g.keys, keys); g.holder == h && (shared == len(g.keys) || !w.hybrid(h)) {
			n = max(n, shared)
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
