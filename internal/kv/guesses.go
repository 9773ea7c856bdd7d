package kv

import (
	"maps"
	"slices"
	"sort"
	"sync/atomic"
	"time"
)

// guess is one speculation.
type guess struct {
	keys   []Key // our own copy
	holder Holder
	shared int32 // leading keys in common with the guess before it in the list
	asked  int32 // requests that are to compute the keys, and may fail
	until  time.Time
}

func (g *guess) end() guessEnd { return guessEnd{g.keys[len(g.keys)-1], g.holder} }

// guessEnd tells a guess from all others: the last key implies the rest.
type guessEnd struct {
	key    Key
	holder Holder
}

// guesses are the speculations of all holders, in the order of their keys. The guesses that share most with
// a prompt therefore stand next to the prompt's own place. What a guess shares with the prompt is the
// minimum of what the neighbours in between share. guesses have a lock of their own, so sending a prompt
// never waits for a batch of events.
type guesses struct {
	maxKeys int
	pending atomic.Int64 // guesses in list, for readers without the lock
	taken   atomic.Int64 // bytes

	mu    spinLock // guards the following
	list  []guess
	ends  map[guessEnd]struct{}
	sieve [256]uint64    // a bit for each end, by the low bits of its key; some bits too many until Expire
	keys  int            // in all of list
	of    map[Holder]int // how many
}

func (gs *guesses) bytes() int64 { return gs.taken.Load() }

func (gs *guesses) add(h Holder, keys []Key, until time.Time) {
	keys = keys[:min(len(keys), gs.maxKeys)]
	if len(keys) == 0 {
		return
	}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if at := gs.at(h, keys); at >= 0 {
		g := &gs.list[at]
		g.asked++
		if until.After(g.until) {
			g.until = until
		}
		return
	}
	gs.makeRoom(h, len(keys))
	gs.insert(guess{keys: keys, holder: h, asked: 1, until: until})
}

func (gs *guesses) retract(h Holder, keys []Key) {
	keys = keys[:min(len(keys), gs.maxKeys)]
	gs.mu.Lock()
	defer gs.mu.Unlock()
	at := gs.at(h, keys)
	if at < 0 || gs.list[at].asked == 0 {
		return
	}
	if gs.list[at].asked--; gs.list[at].asked == 0 {
		gs.remove(at)
	}
}

func (gs *guesses) await(h Holder, keys []Key, until time.Time) {
	keys = keys[:min(len(keys), gs.maxKeys)]
	if len(keys) == 0 {
		return
	}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if at := gs.at(h, keys); at >= 0 {
		gs.list[at].asked, gs.list[at].until = 0, until
		return
	}
	gs.makeRoom(h, len(keys))
	gs.insert(guess{keys: keys, holder: h, until: until})
}

// at returns the place of the guess that h has all of keys, -1 if there is no such guess.
func (gs *guesses) at(h Holder, keys []Key) int {
	if len(keys) == 0 {
		return -1
	}
	end := guessEnd{keys[len(keys)-1], h}
	if _, known := gs.ends[end]; !known {
		return -1
	}
	for at := gs.place(keys); at < len(gs.list) && gs.list[at].end().key == end.key; at++ {
		if gs.list[at].holder == h {
			return at
		}
	}
	return -1
}

// makeRoom drops the guesses that end first: of h while h has too many, of all holders while there are too
// many.
func (gs *guesses) makeRoom(h Holder, keys int) {
	if gs.of[h] >= guessesPerHolder {
		gs.remove(gs.first(func(g *guess) bool { return g.holder == h }))
	}
	for gs.keys+keys > gs.maxKeys {
		gs.remove(gs.first(func(*guess) bool { return true }))
	}
}

// first returns which of the chosen guesses ends first.
func (gs *guesses) first(chosen func(*guess) bool) int {
	at := -1
	for i := range gs.list {
		if g := &gs.list[i]; chosen(g) && (at < 0 || g.until.Before(gs.list[at].until)) {
			at = i
		}
	}
	return at
}

func (gs *guesses) insert(g guess) {
	if gs.ends == nil {
		gs.ends, gs.of = map[guessEnd]struct{}{}, map[Holder]int{}
	}
	at := gs.place(g.keys)
	if at > 0 {
		g.shared = int32(common(gs.list[at-1].keys, g.keys))
	}
	if at < len(gs.list) {
		gs.list[at].shared = int32(common(gs.list[at].keys, g.keys))
	}
	gs.list = slices.Insert(gs.list, at, g)
	gs.ends[g.end()] = struct{}{}
	gs.sift(g.end().key)
	gs.keys += len(g.keys)
	gs.of[g.holder]++
	gs.count()
}

// count publishes the number of guesses for readers without the lock.
func (gs *guesses) count() {
	gs.pending.Store(int64(len(gs.list)))
	gs.taken.Store(int64(gs.keys)*keyBytes + int64(len(gs.list))*guessBytes)
}

func (gs *guesses) sift(key Key) {
	bit := uint(key) % (256 * 64)
	gs.sieve[bit/64] |= 1 << (bit % 64)
}

func (gs *guesses) sifted(key Key) bool {
	bit := uint(key) % (256 * 64)
	return gs.sieve[bit/64]&(1<<(bit%64)) != 0
}

// sieveLocked rebuilds the sieve without the bits of dropped guesses.
func (gs *guesses) sieveLocked() {
	clear(gs.sieve[:])
	for i := range gs.list {
		gs.sift(gs.list[i].end().key)
	}
}

func (gs *guesses) remove(at int) {
	g := &gs.list[at]
	delete(gs.ends, g.end())
	gs.keys -= len(g.keys)
	if gs.of[g.holder]--; gs.of[g.holder] == 0 {
		delete(gs.of, g.holder)
	}
	if at+1 < len(gs.list) {
		gs.list[at+1].shared = min(gs.list[at+1].shared, g.shared)
	}
	gs.list = slices.Delete(gs.list, at, at+1)
	gs.count()
}

// dropLocked removes all that match.
func (gs *guesses) dropLocked(match func(*guess) bool) {
	for at := len(gs.list) - 1; at >= 0; at-- {
		if match(&gs.list[at]) {
			gs.remove(at)
		}
	}
}

func (gs *guesses) forget(h Holder) {
	if gs.pending.Load() == 0 {
		return
	}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.dropLocked(func(g *guess) bool { return g.holder == h })
}

// confirm drops the guesses about h that end with one of keys: events have now confirmed these guesses.
func (gs *guesses) confirm(h Holder, keys []Key) {
	if gs.pending.Load() == 0 || !gs.some(keys) {
		return
	}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	for _, key := range keys {
		end := guessEnd{key, h}
		if _, known := gs.ends[end]; known {
			gs.remove(gs.find(end))
		}
	}
}

// some reports whether a guess may end with one of keys.
func (gs *guesses) some(keys []Key) bool {
	gs.mu.RLock()
	defer gs.mu.RUnlock()
	return slices.ContainsFunc(keys, gs.sifted)
}

// counts returns the number of guesses about each holder, and of all.
func (gs *guesses) counts() (by map[Holder]int, all int) {
	gs.mu.RLock()
	defer gs.mu.RUnlock()
	return maps.Clone(gs.of), len(gs.list)
}

func (gs *guesses) find(end guessEnd) int {
	for i := range gs.list {
		if g := &gs.list[i]; g.holder == end.holder && g.end() == end {
			return i
		}
	}
	return -1
}

// match raises depth to the guessed part of keys. A holder of a hybrid model can continue only behind the
// whole guess: its thin groups keep nothing of the way there.
func (gs *guesses) match(keys []Key, depth []int32, hybrid func(Holder) bool) {
	if gs.pending.Load() == 0 {
		return
	}
	gs.mu.RLock()
	defer gs.mu.RUnlock()
	at := gs.place(keys)
	if at > 0 {
		shared := int32(common(gs.list[at-1].keys, keys))
		for i := at - 1; i >= 0 && shared > 0; i-- {
			gs.list[i].raise(depth, shared, hybrid)
			shared = min(shared, gs.list[i].shared)
		}
	}
	if at < len(gs.list) {
		shared := int32(common(gs.list[at].keys, keys))
		for i := at; i < len(gs.list) && shared > 0; i++ {
			gs.list[i].raise(depth, shared, hybrid)
			if i+1 < len(gs.list) {
				shared = min(shared, gs.list[i+1].shared)
			}
		}
	}
}

// depth returns how many of keys h is guessed to have.
func (gs *guesses) depth(h Holder, keys []Key) int {
	depth := make([]int32, int(h)+1)
	gs.match(keys, depth, func(Holder) bool { return false })
	return int(depth[h])
}

func (g *guess) raise(depth []int32, to int32, hybrid func(Holder) bool) {
	if int(g.holder) < len(depth) && (int(to) == len(g.keys) || !hybrid(g.holder)) {
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
	lo, hi := 0, min(len(a), len(b)) // the first lo are shared, and not that at hi, if there is one
	for lo < hi {
		if mid := int(uint(lo+hi) / 2); a[mid] == b[mid] {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}
