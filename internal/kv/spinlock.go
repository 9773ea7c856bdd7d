package kv

import "sync"

// spinLock is a lock for many readers. A goroutine that waits for it spins for a moment before it sleeps.
// The lock is held for microseconds only. Sleeping and waking takes longer: on a busy machine up to a tick
// of the kernel's clock, 4 ms.
type spinLock struct{ sync.RWMutex }

// spinTries is how often a taken lock is tried, some 50 ns apart: longer than anyone holds it, unless its
// processor is taken away.
const spinTries = 500

// Lock is for writers.
func (g *spinLock) Lock() {
	if !g.TryLock() && !spin(g.TryLock) {
		g.RWMutex.Lock()
	}
}

// RLock is for readers.
func (g *spinLock) RLock() {
	if !g.TryRLock() && !spin(g.TryRLock) {
		g.RWMutex.RLock()
	}
}

// spin tries until it works, and reports whether it did within its patience.
func spin(try func() bool) bool {
	for range spinTries {
		for range 50 { // leaves the lock alone for a moment
		}
		if try() {
			return true
		}
	}
	return false
}
