package kv

import "sync"

// gate is a lock for many readers whose users wait awake for a while. What it guards is held for
// microseconds; to be put to sleep and woken again takes longer, and on a busy machine up to a tick of the
// kernel's clock, 4 ms.
type gate struct{ sync.RWMutex }

// awakeTries is how often a taken lock is tried, some 50 ns apart: longer than anyone holds it, unless its
// processor is taken away.
const awakeTries = 500

// Lock is for writers.
func (g *gate) Lock() {
	if !g.TryLock() && !awake(g.TryLock) {
		g.RWMutex.Lock()
	}
}

// RLock is for readers.
func (g *gate) RLock() {
	if !g.TryRLock() && !awake(g.TryRLock) {
		g.RWMutex.RLock()
	}
}

// awake tries until it works, and reports whether it did within its patience.
func awake(try func() bool) bool {
	for range awakeTries {
		for range 50 { // leaves the lock alone for a moment
		}
		if try() {
			return true
		}
	}
	return false
}
