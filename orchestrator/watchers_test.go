package orchestrator

import "testing"

// Subscribers of decisions that never read, however many: adding a record waits for none of them, each keeps
// as much as its buffer holds, and is told of the rest.
func TestSlowWatchersHoldUpNobody(t *testing.T) {
	const watchers = 500
	const buffer, added = 256, 1000
	g := newRing(10)
	var all []func() uint64
	for range watchers {
		records, lost, stop := g.watch(buffer)
		defer stop()
		all = append(all, func() uint64 { return lost() + uint64(len(records))<<32 })
	}
	for range added { // would stand still here for good
		g.add(&Record{})
	}
	for i, state := range all {
		if kept, lost := state()>>32, state()&(1<<32-1); kept != buffer || lost != added-buffer {
			t.Fatalf("watcher %d: %d kept and %d lost, want %d and %d", i, kept, lost, buffer, added-buffer)
		}
	}
}
