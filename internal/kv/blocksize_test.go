package kv

import "testing"

func TestBlockSizeIn(t *testing.T) {
	event := func(size, hashes int, edit func(*Event)) *Batch {
		e := Event{
			Kind: Stored, Hashes: make([]EngineHash, hashes), Tokens: make([]Token, hashes*size), BlockSize: size,
			Group: NoGroup,
		}
		if edit != nil {
			edit(&e)
		}
		return &Batch{Events: []Event{{Kind: Removed, Hashes: make([]EngineHash, 1)}, e}}
	}
	for _, tt := range []struct {
		name     string
		batch    *Batch
		believed int
		want     int
	}{
		{"two blocks", event(32, 2, nil), 16, 32},
		{"two smaller blocks", event(16, 2, nil), 32, 16},
		{"nothing believed", event(16, 2, nil), 0, 16},
		{"one larger block", event(32, 1, nil), 16, 32},
		{"one block as believed", event(16, 1, nil), 16, 16},
		{"one smaller block: part of one", event(16, 1, nil), 32, 0},
		{"one block, nothing believed: part of one", event(16, 1, nil), 0, 0},
		{
			"full attention by name", event(32, 2, func(e *Event) { e.SpecKind, e.Group = "full_attention", 1 }), 16,
			32,
		},
		{"a sliding window", event(32, 2, func(e *Event) { e.SpecKind, e.Group = "sliding_window", 1 }), 16, 0},
		{"Mamba", event(784, 2, func(e *Event) { e.SpecKind = "mamba" }), 16, 0},
		{"masked blocks", event(32, 3, func(e *Event) { e.Hashes = e.Hashes[:2] }), 16, 0},
		{"a placeholder", event(0, 1, nil), 16, 0},
		{"an offloaded chunk", event(256, 2, func(e *Event) { e.Tier = CPU }), 16, 0},
		{"a removal", event(32, 2, func(e *Event) { e.Kind = Removed }), 16, 0},
		{"no event", &Batch{}, 16, 0},
	} {
		if got := BlockSizeIn(tt.batch, tt.believed); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}
