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
	Block  int     // tokens of a block, where Keys are of blocks; 0 stands for UsualBlock
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
	usable := !m.Gone && !m.keepsNone() && m.fits(p)
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
		ix.Invalidate(holder, p.Keys, p.parts(cached))
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
	return p.text() || m.Believed() == replica.Approximate && m.fits(p)
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

// Guesses returns the kept guesses of this router from a number on, and the number of the next guess. A
// number that is not reached yet, perhaps because another process gave it out, counts as the next number.
func (r *Roster[M]) Guesses(from uint64) (gs []Guess, next uint64) {
	l := &r.guesses
	l.asked.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next > keptGuesses {
		from = max(from, l.next-keptGuesses)
	}
	for n := from; n < l.next; n++ {
		gs = append(gs, l.ring[n%keptGuesses])
	}
	return gs, l.next
}

// MergeGuesses lets the index count the prompts that another router has sent. No router reports how a prompt
// ended. The guess is believed for twice the time that the prompt should take, unless events come earlier. A
// guess about a replica that is not a member is ignored.
func (r *Roster[M]) MergeGuesses(gs []Guess, now time.Time) {
	for i := range gs {
		g := &gs[i]
		r.members.Lock()
		m, ok := r.members.Find(g.ID)
		r.members.Unlock()
		if ok {
			r.speculate(m.member(), &Prompt{Keys: g.Keys}, g.Within, now)
		}
	}
}

// Foresee predicts which blocks m evicts for p, of which m has the given leading tokens. It returns nil where
// events do not tell what m holds. The caller calls [Roster.Ended] at the end of p.
func (r *Roster[M]) Foresee(m *Member, p Prompt, matched int) *kv.Foreseen {
	ix := r.blocks.Load()
	if ix == nil || len(p.Keys) == 0 || p.text() {
		return nil
	}
	r.members.Lock()
	// An engine gives out all blocks but one.
	room, usable := m.R.Facts.Blocks-1, !m.Gone && m.Believed() == replica.Live && m.fits(&p)
	r.members.Unlock()
	if !usable || room <= 0 {
		return nil
	}
	unit := p.Unit()
	return ix.Foresee(m.Holder, p.Keys, (p.Tokens+unit-1)/unit-matched/unit, room)
}

// Ended says that p, for which f was foreseen, has ended on m.
func (r *Roster[M]) Ended(m *Member, p Prompt, f *kv.Foreseen) {
	if ix := r.blocks.Load(); ix != nil && f != nil {
		ix.Ended(m.Holder, p.Keys, f)
	}
}
