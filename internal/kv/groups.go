package kv

import "math"

// A hybrid model keeps the KV of a prompt in several cache groups. A request can continue only from a block
// at which every group can serve the request.
//
//	full attention    h1 h2 h3 h4 h5 h6 h7 h8    every block: they say how far a prefix reaches
//	sliding window    .  .  h3 h4 .  .  h7 h8    the blocks of the last window before a boundary
//	Mamba             .  .  .  .  .  .  .  h8    one state, at a boundary
//
// Groups of the second and third kind are thin groups. Their events leave out the hashes of the blocks that
// the group does not keep, so the tokens do not tell which blocks it keeps. But vLLM gives a block the same
// name in all groups, after the prefix that ends with the block. The content of a block therefore comes from
// a whole group. A thin group only says which of the named blocks it has.

// use says how the index uses an event that stores blocks.
type use uint8

const (
	nothing   use = iota
	byContent     // its tokens say where the blocks belong
	byName        // its hashes say which of the known blocks have one more copy
)

// spec is the family of attention that a group's kind names.
type spec uint8

const (
	unsaid  spec = iota // it may be any
	whole               // keeps every block of a prefix
	thin                // keeps some
	useless             // says nothing of prompts
)

func specOf(kind string) spec {
	switch kind {
	case "", "unknown":
		return unsaid
	case "full_attention", "mla_attention", "sink_full_attention":
		return whole
	case "encoder_only_attention", "cross_attention":
		return useless
	}
	return thin
}

// servesPrefix reports whether a group of this kind keeps every block of a prefix, as far as it is said.
func servesPrefix(kind string) bool { return specOf(kind) <= whole }

// tail is what a thin group must have so that a request can continue behind a block. The group must have its
// last blocks up to there without a hole, as many as least says, or all of its blocks from the start.
type tail struct {
	stride int32 // of our blocks, between two of the boundaries at which group and index both end a block
	least  int32
}

// everything is the least of a group that keeps every block, but blocks of another size than the index.
const everything = math.MaxInt32

// tailOf returns what a group needs in an index with blocks of size. blockSize is the tokens of the group's
// blocks, and window the tokens of its window, 0 unsaid.
func tailOf(size, blockSize, window int) tail {
	stride := int64(blockSize / gcd(blockSize, size))
	t := tail{stride: int32(min(stride, math.MaxInt32)), least: 1}
	if step := stride * int64(size); window > 1 {
		t.least = int32(max(1, min((int64(window)-2)/step+1, everything)))
	}
	return t
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// placeholder reports whether the event only names blocks: a tier outside the engine's block pool that tells
// no tokens (OffloadingConnector, events.py).
func (e *Event) placeholder() bool { return e.BlockSize == 0 && len(e.Tokens) == 0 }

// telling reports whether each hash comes with its own tokens.
func (e *Event) telling() bool {
	return len(e.Hashes) > 0 && e.BlockSize > 0 && len(e.Tokens) == len(e.Hashes)*e.BlockSize &&
		(e.Extra == nil || len(e.Extra) == len(e.Hashes))
}

// group returns the group of an event, false if it cannot be told. Groups count from the first store that
// names one; everything stored before is dropped then. After that, a store without a group comes from a
// connector that never announces dropped blocks (LMCache).
func (t *holding) group(e *Event) (number int, ok bool) {
	switch {
	case e.Group != NoGroup && !t.seen.named && e.Kind == Stored && !e.placeholder():
		t.beginNaming()
		return e.Group, true
	case e.Group != NoGroup && !t.seen.named:
		return NoGroup, true
	case e.Group == NoGroup && t.seen.named && e.Kind == Stored:
		return t.onlyGroup(e)
	}
	return e.Group, true
}

// onlyGroup returns the group of a placeholder without a group, if the holder has only one group.
func (t *holding) onlyGroup(e *Event) (number int, ok bool) {
	for i := range t.stocks {
		if ok {
			return NoGroup, false
		}
		number, ok = int(t.stocks[i].group), true
	}
	return number, ok && e.placeholder()
}

func (t *holding) beginNaming() {
	t.burn()
	t.dropStocks()
	t.seen.named = true
}

// useOf says how the index uses a stored event, and notes what the event tells about its group.
func (t *holding) useOf(e *Event, group int16) use {
	s, kind := t.groupStock(group), specOf(e.SpecKind)
	switch {
	case kind == useless || t.dict.chain.size < 1:
		return nothing
	case e.Tier != GPU || e.placeholder():
		how := t.useBelow(s, e, kind, t.seen.named)
		if how == byContent && !t.learnWhole(group) {
			return nothing
		}
		return how
	case !t.seen.named:
		return t.useUnnamed(e)
	case kind == thin || kind == unsaid && s != nil && s.thin:
		return t.learnThin(e, group, tailOf(t.dict.chain.size, max(e.BlockSize, 1), e.Window))
	case e.BlockSize != t.dict.chain.size:
		return t.useOtherSize(e, group, kind)
	case kind == unsaid && len(e.Tokens) > len(e.Hashes)*e.BlockSize: // some hashes were left out
		return t.learnThin(e, group, tail{1, 1})
	case !t.learnWhole(group) || !e.telling():
		return nothing
	}
	return byContent
}

// useUnnamed is useOf for engines that name no groups: they have one.
func (t *holding) useUnnamed(e *Event) use {
	if servesPrefix(e.SpecKind) && e.BlockSize == t.dict.chain.size && e.telling() {
		return byContent
	}
	return nothing
}

// useBelow is useOf for tiers below the engine's block pool. These tiers hold copies of blocks that the pool
// had. A block's content may depend on more than its tokens. An event may leave this out (see [Event.Bare]),
// and then does not tell the content.
func (t *holding) useBelow(s *stock, e *Event, kind spec, named bool) use {
	tells := !e.Bare && e.BlockSize == t.dict.chain.size && e.telling() && kind != thin
	switch {
	case s != nil && (s.thin || !tells):
		return byName
	case tells && (s != nil || !named || kind == whole):
		return byContent
	}
	return nothing
}

// useOtherSize is for blocks of another size than the index's. A single hash of a group with the index's
// size is part of a block.
func (t *holding) useOtherSize(e *Event, group int16, kind spec) use {
	if s := t.groupStock(group); e.BlockSize < 1 || s != nil && !s.thin {
		return nothing
	}
	need := tailOf(t.dict.chain.size, e.BlockSize, 0)
	if kind == whole {
		need.least = everything
	}
	return t.learnThin(e, group, need)
}

// learnWhole notes that a group keeps every block, of our size.
func (t *holding) learnWhole(group int16) bool {
	if s := t.groupStock(group); s != nil && s.thin {
		t.empty(group).thin = false
		t.exposeAnew()
	}
	return t.stockOf(group) != nil
}

// learnThin notes that a group keeps only some blocks, and what a request needs from the group. It drops the
// blocks placed for the group before, and the holder's guesses, which may end at a block that the group does
// not keep.
func (t *holding) learnThin(e *Event, group int16, need tail) use {
	s := t.groupStock(group)
	switch {
	case s == nil:
		if !t.makeStock(stock{group: group, thin: true, size: e.BlockSize, need: need}) {
			return nothing
		}
	case !s.thin:
		s = t.empty(group)
		s.thin = true
		s.size = e.BlockSize
		s.need = need
		t.exposeAnew()
	case e.BlockSize > s.size || e.BlockSize == s.size && need.least != s.need.least: // less is part of one
		s.size, s.need = e.BlockSize, need
		t.exposeAnew()
	default:
		return byName
	}
	t.ix.guesses.forget(t.holder)
	return byName
}

// empty drops all copies in a group and returns the group's stock.
func (t *holding) empty(group int16) *stock {
	t.sift(func(c copies) bool { return c.group != group })
	return t.groupStock(group)
}

func (t *holding) exposeAnew() {
	t.ix.mu.Lock()
	defer t.ix.mu.Unlock()
	t.ix.columns.expose(t)
}
