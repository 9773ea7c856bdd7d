package roster

import (
	"time"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
)

// This file has what routing history teaches: the index of members without events, and the index of text.

// Prompt names the parts of one prompt from its start on. Keys must not be changed afterwards.
type Prompt struct {
	Keys   []kv.Key
	Tokens int     // of the prompt, 0 unknown: an engine computes the last one anyway
	Chunk  float64 // tokens of a chunk by estimate, where Keys are of chunks of text; 0 where they are of blocks
}

// text reports whether the keys are of chunks of text.
func (p *Prompt) text() bool { return p.Chunk > 0 }

// unknownBlocks is the assumed capacity of a replica that reports none: some 500,000 tokens, as in other
// routers.
const unknownBlocks = 31250

// guessTime is how long after a prompt was computed its blocks must have been heard of.
const guessTime = 2 * time.Second

// Speculate lets the index count p as m's before p is computed and m's events announce it. The caller then
// reports the outcome with [Roster.Await] or [Roster.Retract]. Without a report, p is believed for at most
// twice the given time.
func (r *Roster[M]) Speculate(m *Member, p Prompt, within time.Duration, now time.Time) {
	if r.speculate(m, &p, within, now) && !p.text() && r.guesses.asked.Load() {
		r.members.Lock()
		id := m.R.ID
		r.members.Unlock()
		r.guesses.add(Guess{id, p.Keys, within})
	}
}

// speculate reports whether p can be m's.
func (r *Roster[M]) speculate(m *Member, p *Prompt, within time.Duration, now time.Time) bool {
	ix := r.guessing(m, p)
	if ix != nil {
		ix.Speculate(m.Holder, p.Keys, now.Add(2*within+guessTime))
	}
	return ix != nil
}

// Await tells that m has computed p: its events must say so soon.
func (r *Roster[M]) Await(m *Member, p Prompt, now time.Time) {
	if ix := r.guessing(m, &p); ix != nil {
		ix.Await(m.Holder, p.Keys, now.Add(guessTime))
	}
}

// Retract tells that m was to compute p and has not.
func (r *Roster[M]) Retract(m *Member, p Prompt) {
	if ix := r.guessing(m, &p); ix != nil {
		ix.Retract(m.Holder, p.Keys)
	}
}

// guessing returns the index in which p may be guessed to be m's, nil if there is none.
func (r *Roster[M]) guessing(m *Member, p *Prompt) *kv.Index {
	if len(p.Keys) == 0 {
		return nil
	}
	r.members.Lock()
	usable := !m.Gone && !m.keepsNone() && (p.text() || m.sizeFits(r.BlockSize()))
	r.members.Unlock()
	if !usable {
		return nil
	}
	return r.of(p)
}

// RecordComputed notes that m has computed p, so that it has all of p now. cached is the number of tokens of
// p that m reports to have found in its cache, -1 unknown; believed is the expected number.
//
// If m found fewer than expected, the rest is gone, with all blocks assumed behind it. RecordComputed
// changes nothing where events report m's blocks.
func (r *Roster[M]) RecordComputed(m *Member, p Prompt, believed, cached int) {
	if len(p.Keys) == 0 {
		return
	}
	r.feed.RLock() // until the end: a caller that makes events count from now on forgets afterwards
	defer r.feed.RUnlock()
	r.members.Lock()
	holder := m.Holder
	usable := !m.Gone && r.learns(m, &p)
	limit := r.capacity(m, &p)
	r.members.Unlock()
	ix := r.of(&p)
	if ix == nil || !usable {
		return
	}
	if cached >= 0 && r.refutes(&p, believed, cached) {
		ix.Invalidate(holder, p.Keys, r.parts(&p, cached))
	}
	ix.Assume(holder, p.Keys, limit)
}

// Remember is RecordComputed for a prompt that the member id had before.
func (r *Roster[M]) Remember(id replica.ID, p Prompt) {
	r.members.Lock()
	m, ok := r.members.byID[id]
	r.members.Unlock()
	if ok {
		r.RecordComputed(m.member(), p, 0, -1)
	}
}

// learns reports whether m's blocks are known from routing history.
func (r *Roster[M]) learns(m *Member, p *Prompt) bool {
	if m.keepsNone() {
		return false
	}
	return p.text() || m.Believed() == replica.Approximate && m.sizeFits(r.BlockSize())
}

// capacity returns how many parts of prompts m has room for.
func (r *Roster[M]) capacity(m *Member, p *Prompt) int {
	blocks, size := m.R.Facts.Blocks, m.blockSize()
	if blocks <= 0 {
		blocks = unknownBlocks
	}
	if !p.text() {
		return blocks
	}
	if size <= 0 {
		size = UsualBlock
	}
	return max(1, int(float64(blocks*size)/p.Chunk))
}

// refutes reports whether the engine's count shows that less was there than believed. Of text we only know
// roughly how many tokens it has.
func (r *Roster[M]) refutes(p *Prompt, believed, cached int) bool {
	if p.text() {
		return cached < believed/2
	}
	return cached < believed
}

// parts returns how many whole parts of p the given tokens are.
func (r *Roster[M]) parts(p *Prompt, tokens int) int {
	if p.text() {
		return int(float64(tokens) / p.Chunk)
	}
	return tokens / r.Unit()
}

// Common returns how many leading tokens two prompts share by their keys: at least known, which are shared
// anyway.
func (r *Roster[M]) Common(a, b *Prompt, known int) int {
	if a.text() != b.text() {
		return known
	}
	from := r.parts(a, known)
	if from >= min(len(a.Keys), len(b.Keys)) || a.Keys[from] != b.Keys[from] { // almost always
		return known
	}
	n := from + kv.Common(a.Keys[from:], b.Keys[from:])
	return r.tokens(a, n)
}

// tokens returns how many tokens the given whole parts of p are.
func (r *Roster[M]) tokens(p *Prompt, parts int) int {
	if p.text() {
		return int(float64(parts) * p.Chunk)
	}
	return parts * r.Unit()
}

// of returns the index that p's keys belong to, nil if there is none.
func (r *Roster[M]) of(p *Prompt) *kv.Index {
	if p.text() {
		if tx := r.text.Load(); tx != nil {
			return tx.Index
		}
		return nil
	}
	if ix := r.index.Load(); ix != nil {
		return ix.Index
	}
	return nil
}

// HasOnly reports whether m has the given leading tokens of p by its events, and nothing shows that it has,
// or will soon have, more.
func (r *Roster[M]) HasOnly(m *Member, p Prompt, tokens int) bool {
	ix := r.of(&p)
	return ix != nil && ix.HasOnly(m.Holder, p.Keys, min(r.parts(&p, tokens), len(p.Keys)))
}

// Heard returns how many of the given leading tokens of p m has by its events. known is false where events
// do not tell: there is no index, or the index has dropped some of m's blocks to save memory.
func (r *Roster[M]) Heard(m *Member, p Prompt, tokens int) (of int, known bool) {
	ix := r.of(&p)
	if ix == nil || ix.Truncated(m.Holder) {
		return 0, false
	}
	parts := min(r.parts(&p, tokens), len(p.Keys))
	return r.tokens(&p, ix.Heard(m.Holder, p.Keys[:parts])), true
}

// Matches is the answer of the index for one prompt: the match of each member.
type Matches struct {
	index *kv.Index
	depth []int32
	chunk float64
	unit  int // tokens of a block
	most  int // blocks that can be found
}

// Matches returns what depth, which [Roster.Match] set, says about a prompt of the given number of tokens.
// chunk is the Chunk of its [Prompt].
func (r *Roster[M]) Matches(depth []int32, chunk float64, tokens int) Matches {
	unit := r.Unit()
	return Matches{r.of(&Prompt{Chunk: chunk}), depth, chunk, unit, (tokens - 1) / unit}
}

// Tokens returns how many leading tokens of the prompt m has. They are whole blocks, and fewer than all its
// tokens, since an engine computes the last one anyway.
func (x *Matches) Tokens(m *Member) int {
	if int(m.Holder) >= len(x.depth) {
		return 0
	}
	n := int(x.depth[m.Holder])
	if x.chunk > 0 {
		n = int(float64(n)*x.chunk) / x.unit
	}
	return min(n, x.most) * x.unit
}

// Truncated reports whether the index has dropped something of m for its byte budget, so that its depth may
// be too small.
func (x *Matches) Truncated(m *Member) bool { return x.index != nil && x.index.Truncated(m.Holder) }

// Match sets depth to the number of leading parts of p that each holder has.
func (r *Roster[M]) Match(p Prompt, depth []int32) {
	keys := p.Keys
	if p.Tokens > 0 && !p.text() {
		keys = keys[:min(len(keys), (p.Tokens-1)/r.Unit())]
	}
	if ix := r.of(&p); ix != nil && len(keys) > 0 {
		ix.Match(keys, depth)
		return
	}
	clear(depth)
}
