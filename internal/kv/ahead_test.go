package kv

import "testing"

// An engine whose hashes look ahead may not find the last block that it shares with a prompt. So this block
// does not count. After Forget, the hashes of the engine are ordinary hashes.
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
		{"an event without a look-ahead", []Event{stored(5, 6, 1)}, 5},
		{"all blocks of the prompt", []Event{with(stored(6, 12, 1), looking)}, 7},
		{"cleared", []Event{{Kind: Cleared}}, 0},
	} {
		ix.Apply(1, &Batch{Events: step.events})
		if got := depthOf(ix, 1, promptKeys(8, 1)); got != step.want {
			t.Errorf("step %d, %s: got depth %d, want %d", i, step.name, got, step.want)
		}
	}
	ix.Apply(2, &Batch{Events: []Event{stored(0, 8, 1)}})
	if got := depthOf(ix, 2, promptKeys(8, 1)); got != 8 {
		t.Errorf("got depth %d of another engine, want 8", got)
	}
	ix.Forget(1)
	ix.Apply(1, &Batch{Events: []Event{stored(0, 8, 1)}})
	if got := depthOf(ix, 1, promptKeys(8, 1)); got != 8 {
		t.Errorf("got depth %d after Forget, want 8", got)
	}
}
