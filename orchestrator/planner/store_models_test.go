package planner

import (
	"testing"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
)

// Two models have the same token ids for a prompt. What the store has for one, it does not have for the
// other, by reports and by events.
func TestStoreKeepsModelsApart(t *testing.T) {
	f := newFleet(2, 2, func(r *replica.Replica) {
		if r.ID == "p2" || r.ID == "d2" {
			r.Facts.Model, r.Facts.Root = "other", "org/other"
			r.Facts.Models = []string{"other"}
		}
	})
	ask := func(model string, tokens int) *Request {
		r := f.request(1, tokens)
		r.Model, r.StoreUnit = model, 1
		r.DecodeBlock, r.PrefillBlock = blockSize, blockSize
		return r
	}
	stored := func(model string, tokens int) int {
		b := f.plan(t, ask(model, tokens))
		defer b.Release(f.now)
		return b.Stored()
	}
	f.store(t, f.prefill, "p1", 1, 40)
	f.pl.Store().Gave(ask("m", 320), Report{Cached: 304}, f.now)
	e := kv.Event{Kind: kv.Stored, Tier: kv.Shared, Group: kv.NoGroup, Bare: true}
	for i := range 40 {
		e.Hashes = append(e.Hashes, kv.EngineHash(1<<32|uint64(i)|1<<62))
	}
	f.prefill.Apply("p1", &kv.Batch{Events: []kv.Event{e}})
	for _, tt := range []struct {
		model  string
		tokens int
		want   int
	}{{"m", 320, 304}, {"m", 600, 592}, {"other", 320, 0}, {"other", 600, 0}} {
		if got := stored(tt.model, tt.tokens); got != tt.want {
			t.Errorf("of a prompt of %d tokens for %s the store has %d, want %d", tt.tokens, tt.model, got, tt.want)
		}
	}
}
