package kv

import "testing"

// An engine whose hashes look ahead may not find the last block that a prompt shares with it, so that block
// does not count. After the engine is forgotten, its hashes are ordinary hashes.
func TestLastBlockOfHashesThatLookAhead(t *testing.T) {
	looking := func(e *Event) { e.Ahead = 1 }
	ix := NewIndex(Options{Chain: testChain})
	for i, step := range []struct {
		name   string
		events []Event
		want   int // of the 8 blocks of prompt 1
	}{
		{"one block", []Event{with(stored(0, 1, 1), looking)}, 0},
		{"five blocks", []Event{with(stored(1, 5, 1), looking)}, 4},
		{"an event that does not say it", []Event{stored(5, 6, 1)}, 5},
		{"all that was asked for", []Event{with(stored(6, 12, 1), looking)}, 7},
		{"all gone", []Event{{Kind: Cleared}}, 0},
	} {
		ix.Apply(1, &Batch{Events: step.events})
		if got := depthOf(ix, 1, promptKeys(8, 1)); got != step.want {
			t.Errorf("step %d, %s: depth %d, want %d", i, step.name, got, step.want)
		}
	}
	ix.Apply(2, &Batch{Events: []Event{stored(0, 8, 1)}})
	if got := depthOf(ix, 2, promptKeys(8, 1)); got != 8 {
		t.Errorf("another engine's depth is %d, want 8", got)
	}
	ix.Forget(1)
	ix.Apply(1, &Batch{Events: []Event{stored(0, 8, 1)}})
	if got := depthOf(ix, 1, promptKeys(8, 1)); got != 8 {
		t.Errorf("after it was forgotten: depth %d, want 8", got)
	}
}
