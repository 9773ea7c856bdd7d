package main

import (
	"runtime"
	"testing"
)

// A router that was busy keeps its memory for the next requests. When it is idle, the system gets back what
// nothing uses, also if requests still ran at the return before. Memory in use is not collected at each look.
func TestAnIdleRouterReturnsMemory(t *testing.T) {
	held := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.Sys - m.HeapReleased
	}
	var r returner
	looks := func(n int) (collections uint32) {
		var was, is runtime.MemStats
		runtime.ReadMemStats(&was)
		for range n {
			r.look()
		}
		runtime.ReadMemStats(&is)
		return is.NumForcedGC - was.NumForcedGC
	}
	least := held()
	runs, ended := touched(), touched()
	if n := looks(2); n != 0 { // the first sees the allocations
		t.Errorf("%d collections by a busy process, want 0", n)
	}
	runtime.KeepAlive(ended)
	const half = worthReturning / 2
	if n := looks(1); n != 1 || held() > least+worthReturning+half {
		t.Errorf("%d collections; the process holds %d, and at its start %d", n, held(), least)
	}
	if n := looks(looksAgain - 1); n != 0 {
		t.Errorf("%d collections of memory in use, want 0", n)
	}
	runtime.KeepAlive(runs)
	if n := looks(1); n != 1 || held() > least+half {
		t.Errorf("%d collections; the process holds %d, and at its start %d", n, held(), least)
	}
}

// touched is memory that the system had to give.
func touched() []byte {
	b := make([]byte, worthReturning)
	for i := 0; i < len(b); i += 4 << 10 {
		b[i] = 1
	}
	return b
}
