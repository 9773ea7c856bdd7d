package kv

import (
	"slices"
	"sort"
	"time"
)

const (
	guessesPerHolder = 64 // more, and the one that ends first goes
	guessShare       = 8  // guesses take at most this part of the byte budget
	guessBytes       = 160
)

// Speculate lets Match believe that h has all of keys, which must start at block 0, until its events bring the last of them, h forgets, or [Index.Expire] is told of a time not before until.
// It is for the moment between sending a prompt and hearing of its blocks. Of one holder the 64 that end last are kept.
// keys are kept as they are: nobody may change them afterwards.
func (ix *Index) Speculate(h Holder, keys []Key, until time.Time) {
	if len(keys) == 0 {
		return
	}
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if !ix.dir.has(keys[len(keys)-1], h) {
		ix.guesses.add(h, keys, until)
	}
}

// Expire drops what was speculated until now or earlier and not confirmed.
func (ix *Index) Expire(now time.Time) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.guesses.drop(func(g *guess) bool { return !g.until.After(now) })
}

// guess is one speculation.
type guess struct {
	keys   []Key // our own copy
	holder Holder
	shared int32 // leading keys in common with the guess before it in the list
	until  time.Time
}

func (g *guess) end() guessEnd { return guessEnd{g.keys[len(g.keys)-1], g.holder} }

// guessEnd tells a guess from all others: the last key implies the rest.
type guessEnd struct {
	key    Key
	holder Holder
}

// guesses are the speculations of all holders in the order of their keys, so that those which share most with a prompt stand together around its own place, and what each shares
// with it is the smallest of what the neighbours in between share. It never touches the trees: a guess is a whole prompt from block 0 and needs none.
type guesses struct {
	list    []guess
	ends    map[guessEnd]struct{}
	keys    int // in all of list
	maxKeys int
}

func newGuesses(budget int64) guesses {
	return guesses{ends: map[guessEnd]struct{}{}, maxKeys: int(budget / 8)}
}

func (gs *guesses) bytes() int64 { return int64(gs.keys)*8 + int64(len(gs.list))*guessBytes }

func (gs *guesses) add(h Holder, keys []Key, until time.Time) {
	keys = keys[:min(len(keys), gs.maxKeys)]
	if len(keys) == 0 {
		return
	}
	g := guess{keys: keys, holder: h, until: until}
	if _, known := gs.ends[g.end()]; known {
		gs.prolong(g.end(), until)
		return
	}
	gs.makeRoom(h, len(keys))
	g.keys = keys
	gs.insert(g)
}

func (gs *guesses) prolong(end guessEnd, until time.Time) {
	g := &gs.list[gs.find(end)]
	if until.After(g.until) {
		g.until = until
	}
}

// makeRoom drops what ends first, of h while h has too many, of anyone while all have.
func (gs *guesses) makeRoom(h Holder, keys int) {
	if i, n := gs.first(func(g *guess) bool { return g.holder == h }); n >= guessesPerHolder {
		gs.remove(i)
	}
	for gs.keys+keys > gs.maxKeys {
		i, _ := gs.first(func(*guess) bool { return true })
		gs.remove(i)
	}
}

// first returns which of the chosen guesses ends first, and their number.
func (gs *guesses) first(chosen func(*guess) bool) (at, number int) {
	at = -1
	for i := range gs.list {
		if !chosen(&gs.list[i]) {
			continue
		}
		number++
		if at < 0 || gs.list[i].until.Before(gs.list[at].until) {
			at = i
		}
	}
	return at, number
}

func (gs *guesses) insert(g guess) {
	at := gs.place(g.keys)
	if at > 0 {
		g.shared = int32(common(gs.list[at-1].keys, g.keys))
	}
	if at < len(gs.list) {
		gs.list[at].shared = int32(common(gs.list[at].keys, g.keys))
	}
	gs.list = slices.Insert(gs.list, at, g)
	gs.ends[g.end()] = struct{}{}
	gs.keys += len(g.keys)
}

func (gs *guesses) remove(at int) {
	g := &gs.list[at]
	delete(gs.ends, g.end())
	gs.keys -= len(g.keys)
	if at+1 < len(gs.list) {
		gs.list[at+1].shared = min(gs.list[at+1].shared, g.shared)
	}
	gs.list = slices.Delete(gs.list, at, at+1)
}

// drop removes all that match.
func (gs *guesses) drop(match func(*guess) bool) {
	for at := len(gs.list) - 1; at >= 0; at-- {
		if match(&gs.list[at]) {
			gs.remove(at)
		}
	}
}

func (gs *guesses) forget(h Holder) { gs.drop(func(g *guess) bool { return g.holder == h }) }

// confirm drops the guess that events have now made true.
func (gs *guesses) confirm(h Holder, key Key) {
	if len(gs.ends) == 0 {
		return
	}
	end := guessEnd{key, h}
	if _, known := gs.ends[end]; known {
		gs.remove(gs.find(end))
	}
}

func (gs *guesses) find(end guessEnd) int {
	return slices.IndexFunc(gs.list, func(g guess) bool { return g.end() == end })
}

// match raises depth to what is guessed of keys.
func (gs *guesses) match(keys []Key, depth []int32) {
	if len(gs.list) == 0 {
		return
	}
	at := gs.place(keys)
	if at > 0 {
		shared := int32(common(gs.list[at-1].keys, keys))
		for i := at - 1; i >= 0 && shared > 0; i-- {
			gs.list[i].raise(depth, shared)
			shared = min(shared, gs.list[i].shared)
		}
	}
	if at < len(gs.list) {
		shared := int32(common(gs.list[at].keys, keys))
		for i := at; i < len(gs.list) && shared > 0; i++ {
			gs.list[i].raise(depth, shared)
			if i+1 < len(gs.list) {
				shared = min(shared, gs.list[i+1].shared)
			}
		}
	}
}

func (g *guess) raise(depth []int32, to int32) {
	if int(g.holder) < len(depth) {
		depth[g.holder] = max(depth[g.holder], to)
	}
}

// place returns the index of the first guess that does not stand before keys.
func (gs *guesses) place(keys []Key) int {
	return sort.Search(len(gs.list), func(i int) bool { return !before(gs.list[i].keys, keys) })
}

// before orders prompts by the first key in which they differ; a prefix stands first.
func before(a, b []Key) bool {
	n := common(a, b)
	if n == len(a) || n == len(b) {
		return len(a) < len(b)
	}
	return a[n] < b[n]
}

// common returns how many leading keys a and b share. A key implies all before it, so halving finds it.
func common(a, b []Key) int {
	n := min(len(a), len(b))
	return sort.Search(n, func(i int) bool { return a[i] != b[i] })
}
