package kv

import "time"

const (
	guessesPerHolder = 64 // more, and the one that ends first goes
	guessShare       = 8  // guesses take at most this part of the byte budget
	guessBytes       = 160
)

// Speculate lets Match believe that h has all of keys, which must start at block 0, until its events bring
// the last of them, h forgets, [Index.Retract] takes it back, or [Index.Expire] is told of a time not before
// until. It is for the moment between sending a prompt and hearing of its blocks. Of one holder the 64 that
// end last are kept. keys are kept as they are: nobody may change them afterwards.
func (ix *Index) Speculate(h Holder, keys []Key, until time.Time) {
	if keys = ix.Reachable(h, keys); len(keys) == 0 {
		return
	}
	if !ix.has(h, keys) {
		ix.guesses.add(h, keys, until)
	}
}

// Retract takes one call of [Index.Speculate] back: whoever was to compute keys has failed. Others who are to
// compute the same keep the guess.
func (ix *Index) Retract(h Holder, keys []Key) {
	if ix.guesses.pending.Load() > 0 {
		ix.guesses.retract(h, ix.Reachable(h, keys))
	}
}

// Await says that h has computed all of keys, so that its events must tell of the last by until: from then on
// they are believed no longer without. keys are kept as they are.
func (ix *Index) Await(h Holder, keys []Key, until time.Time) {
	if keys = ix.Reachable(h, keys); len(keys) > 0 && !ix.has(h, keys) {
		ix.guesses.await(h, keys, until)
	}
}

// Reachable returns as many of keys as h may ever have: of a hybrid model whose groups have blocks of several
// sizes only what ends where all of them end one, and vLLM announces no more.
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

// HasOnly reports whether h has the first n of keys by its events and nothing shows that it has, or will soon
// have, the next of them too.
func (ix *Index) HasOnly(h Holder, keys []Key, n int) bool {
	switch {
	case n > 0 && !ix.has(h, keys[:n]):
		return false
	case n == len(keys):
		return true
	}
	return !ix.has(h, keys[:n+1]) && ix.guesses.depth(h, keys[:n+1]) <= n
}

// Heard returns how many of keys, which start at block 0, h has by its events. Of a hybrid model that is what
// the groups have that keep all tokens.
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

// Expire drops what was speculated until now or earlier and not confirmed.
func (ix *Index) Expire(now time.Time) {
	gs := &ix.guesses
	if gs.pending.Load() == 0 {
		return
	}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.dropLocked(func(g *guess) bool { return !g.until.After(now) })
	gs.sieveLocked()
}
