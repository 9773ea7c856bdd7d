package kv

import (
	"reflect"
	"testing"
)

// A block that an event only names is told by the content that the GPU announced.
func TestKnownBlocks(t *testing.T) {
	salted := with(stored(0, 3, 1), func(e *Event) { e.Salt = "tenant" })
	salty := testChain.Append(nil, testChain.Root("", "tenant"), prompt(3, 1))
	plain := promptKeys(70, 1)
	window := with(stored(0, 3, 1), func(e *Event) { e.Group, e.SpecKind = 1, "sliding_window" })
	ahead := with(stored(0, 3, 1), func(e *Event) { e.Ahead = 1 })
	for _, tt := range []struct {
		name   string
		events []Event
		asked  []EngineHash
		want   []Named
	}{
		{"first block", []Event{stored(0, 3, 1)}, hashes(0, 1, 1), []Named{{0, plain[0]}}},
		{
			"further blocks",
			[]Event{stored(0, 3, 1)},
			hashes(1, 3, 1),
			[]Named{{plain[0], plain[1]}, {plain[1], plain[2]}},
		},
		{"the first of a run", []Event{stored(0, 70, 1)}, hashes(64, 65, 1), []Named{{plain[63], plain[64]}}},
		{"a tenant", []Event{salted}, hashes(0, 2, 1), []Named{{0, salty[0]}, {salty[0], salty[1]}}},
		{"not in any order", []Event{stored(0, 3, 1)}, hashes(2, 3, 1), []Named{{plain[1], plain[2]}}},
		{"unknown blocks", []Event{stored(0, 3, 1)}, hashes(2, 5, 1), []Named{{plain[1], plain[2]}}},
		{"a hybrid model", []Event{stored(0, 3, 1), window}, hashes(0, 1, 1), nil},
		{"hashes that look ahead", []Event{ahead}, hashes(0, 1, 1), nil},
		{"nobody", nil, hashes(0, 1, 1), nil},
	} {
		ix := NewIndex(Options{Chain: testChain})
		ix.Apply(2, &Batch{Events: tt.events})
		if got := ix.Known(nil, 2, tt.asked); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// A block is placed behind a block that the holder has, and nowhere else.
func TestAssumeBehind(t *testing.T) {
	ix, keys := NewIndex(Options{}), promptKeys(70, 1)
	if ix.AssumeBehind(0, Named{keys[0], keys[1]}) {
		t.Error("a block without the one before it was placed")
	}
	for i, key := range keys {
		b := Named{Key: key}
		if i > 0 {
			b.Before = keys[i-1]
		}
		for range 2 {
			if !ix.AssumeBehind(0, b) {
				t.Fatalf("block %d was not placed", i)
			}
		}
		if got := depthOf(ix, 0, keys); got != i+1 {
			t.Fatalf("%d blocks after block %d", got, i)
		}
	}
	checkIndex(t, ix)
	ix.Invalidate(0, keys[40:41], 0)
	if got := depthOf(ix, 0, keys); got != 40 {
		t.Errorf("%d blocks, want 40", got)
	}
	if ix.AssumeBehind(1, Named{keys[5], keys[6]}) {
		t.Error("another holder's block counts")
	}
	checkIndex(t, ix)
}
