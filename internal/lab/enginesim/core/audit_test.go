package core

import (
	"strings"
	"testing"
	"time"
)

// Audit reports each kind of inconsistent state.
func TestAuditFindsWhatIsLost(t *testing.T) {
	for _, tt := range []struct {
		want string
		cook func(e *Engine)
	}{
		{"", func(*Engine) {}},
		{"2 references", func(e *Engine) { e.pool.blocks[e.queues.running[0].blocks.table[0]].refs++ }},
		{"blocks are unheld", func(e *Engine) { e.pool.free-- }},
		{"requests are live", func(e *Engine) { e.queues.running = e.queues.running[:0] }},
		{"requests came", func(e *Engine) { e.known.seq++ }},
		{"prompt tokens", func(e *Engine) { e.counted.counts.PromptLocal++ }},
	} {
		e := New(Config{BlockSize: 4, Blocks: 20})
		b := newBench(t, e)
		b.add(e, &Request{ID: "r", Prompt: prompt(1, 10), MaxTokens: 10})
		e.Step(0)
		tt.cook(e)
		if err := e.Audit(); (err == nil) != (tt.want == "") ||
			err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v", tt.want, err)
		}
	}
}

type fixedPace struct{ seen []Batch }

func (p *fixedPace) Took(b *Batch) time.Duration {
	p.seen = append(p.seen, Batch{append([]Chunk(nil), b.Chunks...), b.Decode, b.Context})
	return time.Duration(b.Tokens()) * time.Millisecond
}

func TestPaceSeesTheBatch(t *testing.T) {
	pace := &fixedPace{}
	e := New(Config{BlockSize: 4, Blocks: 40, MaxBatchedTokens: 8, Pace: pace})
	b := newBench(t, e)
	b.add(e, &Request{ID: "a", Prompt: prompt(1, 6), MaxTokens: 3})
	b.add(e, &Request{ID: "b", Prompt: prompt(2, 9), MaxTokens: 1})
	var took time.Duration
	for range 3 {
		took += e.Step(took).Took
	}
	if want := time.Duration(8+8+1) * time.Millisecond; took != want {
		t.Errorf("three steps took %v, want %v", took, want)
	}
	if len(pace.seen) != 3 || len(pace.seen[0].Chunks) != 2 || pace.seen[0].Chunks[1] != (Chunk{2, 0}) {
		t.Fatalf("Pace saw %+v", pace.seen)
	}
	if got := pace.seen[1]; got.Decode != 1 || got.Context != 7 || len(got.Chunks) != 1 ||
		got.Chunks[0] != (Chunk{7, 2}) || got.Sequences() != 2 {
		t.Errorf("second step %+v", got)
	}
}
