package main

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// ballast is memory that is reserved and never used, so it is in no resident set. It makes the collector wait
// until the heap has grown by as much. A router's live heap is a few megabytes: with GOGC=100 it would be
// collected a hundred times a second under load.
const ballast = 48 << 20

// holdBallast reserves the ballast until release is called. If GOGC is set, nothing is reserved, because the
// operator has chosen.
func holdBallast() (release func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	b := make([]byte, ballast)
	return func() { runtime.KeepAlive(b) }
}

// An idle router allocates little, so that the collector runs only every two minutes, and the runtime keeps
// most of the memory of large bodies. So an idle router collects, and returns its memory to the system.
const (
	idleAllocates  = 16 << 20  // the most bytes between two looks; a busy router needs its memory again
	worthReturning = 128 << 20 // bytes that the process holds
	looksAgain     = 12        // looks until memory that was in use is tried again
)

// returner decides when memory is returned.
type returner struct {
	allocated uint64 // bytes until the last look
	idle      int    // looks in a row
}

// returnMemory returns memory to the system until ctx ends.
func returnMemory(ctx context.Context) {
	for r := (returner{}); ; r.look() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(10 * time.Second):
		}
	}
}

// look returns memory to the system after the process has been idle for two looks, and then from time to
// time. It reads metrics, because [runtime.ReadMemStats] stops all goroutines.
func (r *returner) look() {
	read := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"},
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
	}
	metrics.Read(read)
	allocated, held := read[0].Value.Uint64(), read[1].Value.Uint64()-read[2].Value.Uint64()
	if r.idle++; allocated-r.allocated > idleAllocates {
		r.idle = 0
	}
	r.allocated = allocated
	if r.idle%looksAgain == 2 && held > worthReturning {
		debug.FreeOSMemory()
	}
}
