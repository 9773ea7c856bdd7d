package kv

import (
	"runtime"
	"sync"
)

// gate is a lock for many readers whose users wait awake for a while. What it guards is held for microseconds; to be put to sleep and woken again takes longer, and on a busy
// machine up to a tick of the kernel's clock, 4 ms.
type gate struct{ sync.RWMutex }

const (
	busyTries  = 40 // without letting anyone else run, about 2 us
	awakeTries = 200
)

// Lock is for writers.
func (g *gate) Lock() {
	if !awake(g.TryLock) {
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
	for i := range awakeTries {
		if try() {
			return true
		}
		if i >= busyTries {
			runtime.Gosched() // the holder may wait for our processor
			continue
		}
		for range 50 {
		}
	}
	return false
}
