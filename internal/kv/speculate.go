package kv

import (
	"slices"
	"time"
)

const (
	guessesPerHolder = 64 // beyond it, the guess that ends first goes
	guessShare       = 8  // guesses take at most this part of the byte budget
	guessBytes       = 160
)

// Speculate lets Match believe that h has all of keys, which must start at block 0. The belief ends when the
// events of h bring the last key, or when h forgets. [Index.Retract] ends it too, and so does [Index.Expire]
// at or after until. Speculate covers the moment between sending a prompt and hearing of its blocks. Each
// holder keeps the 64 guesses that end last. The index keeps the keys slice, which the caller
// must not change afterwards.
func (ix *Index) Speculate(h Holder, keys []Key, until time.Time) {
	if keys = ix.Reachable(h, keys); len(keys) == 0 {
		return
	}
	if !ix.has(h, keys) {
		ix.guesses.add(h, keys, until)
	}
}

// Retract takes one call of [Index.Speculate] back: the request that was to compute keys has failed. The
// guess stays while other requests are to compute the same keys.
func (ix *Index) Retract(h Holder, keys []Key) {
	if ix.guesses.pending.Load() > 0 {
		ix.guesses.retract(h, ix.Reachable(h, keys))
	}
}

// Await says that h has computed all of keys. The events of h must tell of the last key by until; after
// that, the keys are no longer believed without events. The index keeps the keys slice.
func (ix *Index) Await(h Holder, keys []Key, until time.Time) {
	if keys = ix.Reachable(h, keys); len(keys) > 0 && !ix.has(h, keys) {
		ix.guesses.await(h, keys, until)
	}
}

// Reachable returns the longest prefix of keys that h may ever have. In a hybrid model whose groups have
// several block sizes, a prefix must end where every group ends a block: vLLM announces no other.
func (ix *Index) Reachable(h Holder, keys []Key) []Key {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	if !ix.columns.hybrid(h) {
		return keys
	}
	step := 1
	for _, g := range ix.columns.thin {
		if stride := int(g.need.stride); g.holder == h && step <= len(keys) {
			step *= stride / gcd(step, stride)
		}
	}
	return keys[:len(keys)-len(keys)%step]
}

// has reports whether h has all of keys, one at least, by its events.
func (ix *Index) has(h Holder, keys []Key) bool { return ix.Heard(h, keys) == len(keys) }

// HasOnly reports whether h has exactly the first n of keys by its events. It is false if events or a guess
// show that h has, or will soon have, the next key too.
func (ix *Index) HasOnly(h Holder, keys []Key, n int) bool {
	switch {
	case n > 0 && !ix.has(h, keys[:n]):
		return false
	case n == len(keys):
		return true
	}
	return !ix.has(h, keys[:n+1]) && ix.guesses.depth(h, keys[:n+1]) <= n
}

// Heard returns how many leading blocks of keys h has by its events. keys start at block 0. For a hybrid
// model only the groups that keep all tokens count.
func (ix *Index) Heard(h Holder, keys []Key) int {
	t := ix.known(h)
	if t == nil || len(keys) == 0 {
		return 0
	}
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	if t.first == 0 {
		return 0
	}
	n := int(ix.content.depthIn(keys, uint16(t.first-1)))
	for _, f := range ix.columns.further {
		if f.holder == h && n > 0 {
			n = min(n, int(ix.content.depthIn(keys[:n], f.column)))
		}
	}
	return n
}

// Expire drops what was speculated until now or earlier and not confirmed. It also drops the copies in
// stores that announce no removals, some time after the copies were announced.
func (ix *Index) Expire(now time.Time) {
	ix.clock.tell(now)
	ix.mu.RLock()
	holdings := slices.Clone(ix.holdings)
	ix.mu.RUnlock()
	for _, t := range holdings {
		if t == nil {
			continue
		}
		t.refute()
		if ix.clock.aging.Load() > 0 {
			t.outdate()
		}
	}
	gs := &ix.guesses
	if gs.pending.Load() == 0 {
		return
	}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.dropLocked(func(g *guess) bool { return !g.until.After(now) })
	gs.sieveLocked()
}

// Foresee predicts which blocks h evicts for a prompt with the given keys, of which fresh blocks are new. The
// engine has room for that many blocks. The events that follow say how right this was (see [Victims]). It
// returns nil if a batch is applied to h right now, or if the index knows only some blocks of h. The caller
// calls [Index.Ended] at the end of the prompt.
func (ix *Index) Foresee(h Holder, keys []Key, fresh, room int) *Foreseen {
	t := ix.known(h)
	if t == nil || !t.mu.TryLock() { // no plan waits for a batch
		return nil
	}
	defer t.mu.Unlock()
	if t.glance.cut.Load() {
		return nil
	}
	if t.victims == nil {
		t.victims = &victims{marks: map[uint32]uint64{}}
	}
	v := t.victims
	t.use(keys)
	v.open += fresh
	v.coming += fresh
	f := &Foreseen{t.next(v.coming + t.onGPU() - room - v.marked), fresh}
	for _, s := range f.list {
		v.marks[s.run] |= s.blocks
		v.marked += s.len()
		t.foreseen.Add(uint64(s.len()))
	}
	t.account()
	return f
}

// Ended says that the prompt of f has ended: its blocks on h are free now. What was foreseen for the prompt
// must go within a second or two.
func (ix *Index) Ended(h Holder, keys []Key, f *Foreseen) {
	t := ix.known(h)
	if t == nil || f == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.victims
	if v == nil { // forgotten meanwhile
		return
	}
	v.open = max(0, v.open-f.fresh)
	v.coming = min(v.coming, v.open)
	v.ended[1] = append(v.ended[1], f.list...)
	path, tick := t.use(keys)
	t.turns.push(path, tick)
	t.tidyTurns()
	t.account()
}
