package kv

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"
)

// captured is an event of a real engine (vLLM 0.32.0, 39 usable blocks of 32 tokens), as JSON.
type captured struct {
	Type   string       `json:"type"`
	Hashes []EngineHash `json:"block_hashes"`
	Parent *EngineHash  `json:"parent_block_hash"`
	Tokens []Token      `json:"token_ids"`
	Size   int          `json:"block_size"`
	Medium string       `json:"medium"`
	Extra  [][]string   `json:"extra_keys"`
	Group  int          `json:"group_idx"`
	Kind   string       `json:"kv_cache_spec_kind"`
}

func (c *captured) event() Event {
	e := Event{
		Hashes: c.Hashes, Tokens: c.Tokens, BlockSize: c.Size, Tier: ParseTier(c.Medium), Group: c.Group,
		SpecKind: c.Kind,
	}
	e.Kind = map[string]EventKind{
		"BlockStored": Stored, "BlockRemoved": Removed, "AllBlocksCleared": Cleared,
	}[c.Type]
	if c.Parent != nil {
		e.Parent, e.HasParent = *c.Parent, true
	}
	if len(c.Extra) > 0 && len(c.Extra[0]) > 0 {
		e.Salt = c.Extra[0][0]
	}
	return e
}

// The events of a real engine leave no orphan, and never add up to more blocks than the engine has room for.
// Every prompt that starts at block 0 is found at once.
func TestCapturedEvents(t *testing.T) {
	chain := NewChain("m", 32)
	ix := NewIndex(Options{Chain: chain})
	f, err := os.Open("testdata/vllm-0.32.0.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			Step   string     `json:"step"`
			Events []captured `json:"events"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		for _, c := range line.Events {
			e := c.event()
			got := ix.Apply(0, &Batch{Events: []Event{e}})
			if got.Orphans+got.Skipped > 0 || e.Kind == Stored && got.Stored != len(e.Hashes) ||
				e.Kind == Removed && got.Removed != 1 {
				t.Errorf("%s: %s of %d blocks: %+v", line.Step, c.Type, len(e.Hashes), got)
			}
			if n := ix.Stats().Memberships; n > 39 {
				t.Errorf("%s: %d blocks, and the engine has 39", line.Step, n)
			}
			if e.Kind != Stored || e.HasParent {
				continue
			}
			keys := chain.Append(nil, chain.Root("", e.Salt), e.Tokens)
			if got := depthOf(ix, 0, keys); got != len(keys) {
				t.Errorf("%s: depth %d of a prompt just stored, want %d", line.Step, got, len(keys))
			}
		}
	}
	if got := ix.Stats().Memberships; got != 3 {
		t.Errorf("%d blocks at the end, want the 3 stored after the reset", got)
	}
}
