package roster

import (
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/replica"
)

// sized makes replicas with the block sizes that they say they have, 0 for one that says none.
func sized(sizes ...int) []replica.Replica {
	var rs []replica.Replica
	for i, size := range sizes {
		rs = append(rs, replica.Replica{ID: replica.ID('a' + rune(i)), Facts: replica.Facts{
			Model: "m", Models: []string{"m"}, BlockSize: size, Blocks: 100,
			Events: replica.EventSource{Endpoint: "tcp://e:1"},
		}})
	}
	return rs
}

func TestBlockSizeFromEvents(t *testing.T) {
	type told struct {
		id   replica.ID
		size int
	}
	for _, tt := range []struct {
		name  string
		facts []int
		told  []told
		want  int
		notes [2]string
	}{
		{name: "nobody knows", facts: []int{0, 0}},
		{name: "the engines say", facts: []int{16, 16}, want: 16},
		{name: "events confirm", facts: []int{16, 16}, told: []told{{"a", 16}}, want: 16},
		{name: "events alone know", facts: []int{0, 0}, told: []told{{"b", 32}}, want: 32},
		{name: "events win", facts: []int{16, 16}, told: []told{{"b", 32}}, want: 32, notes: [2]string{
			"its blocks have 16 tokens, and prompts of its model are matched by 32: it never matches",
			"its events tell blocks of 32 tokens, where 16 were expected",
		}},
		{name: "all events win", facts: []int{
			16, 16,
		}, told: []told{{"b", 32}, {"a", 32}}, want: 32, notes: [2]string{
			"its events tell blocks of 32 tokens, where 16 were expected",
			"its events tell blocks of 32 tokens, where 16 were expected",
		}},
		{name: "a size that events confirm stays", facts: []int{
			16, 16,
		}, told: []told{{"a", 16}, {"b", 32}}, want: 16, notes: [2]string{
			"", "its events tell blocks of 32 tokens, where 16 were expected; its blocks have 32 tokens, and " +
				"prompts of its model are matched by 16: it never matches",
		}},
		{name: "engines that differ", facts: []int{16, 32}, told: []told{{"b", 32}}, want: 32, notes: [2]string{
			"its blocks have 16 tokens, and prompts of its model are matched by 32: it never matches",
		}},
	} {
		r := newRoster()
		r.SetMembers(sized(tt.facts...), start)
		for _, x := range tt.told {
			r.Apply(x.id, stored(x.size, count(4*x.size)))
			if got, _ := r.ReportedBlockSize(x.id); got != x.size {
				t.Errorf("%s: %s told %d, want %d", tt.name, x.id, got, x.size)
			}
		}
		if got := r.matchedBy("m"); got != tt.want {
			t.Errorf("%s: prompts are matched by blocks of %d, want %d", tt.name, got, tt.want)
		}
		for i, m := range r.members.All {
			if got := r.Status(&m.Member, r.Counts()).Note; got != tt.notes[i] {
				t.Errorf("%s: %s is noted as %q, want %q", tt.name, m.R.ID, got, tt.notes[i])
			}
		}
		if len(tt.told) > 0 { // the batch that told the size is in the index
			last := tt.told[len(tt.told)-1]
			if got := r.depths(r.keys(count(4 * last.size)))[last.id[0]-'a']; last.size == tt.want && got != 4 {
				t.Errorf("%s: depth %d of what was told last, want 4", tt.name, got)
			}
		}
	}
}

// An engine that comes back with other blocks is believed anew.
func TestBlockSizeAfterARestart(t *testing.T) {
	r := newRoster()
	r.SetMembers(sized(16), start)
	r.Apply("a", stored(16, count(64)))
	r.Apply("a", stored(32, count(128)))
	if got := r.matchedBy("m"); got != 16 {
		t.Fatalf("prompts are matched by blocks of %d within one life, want 16", got)
	}
	r.Forget("a")
	r.Apply("a", stored(32, count(128)))
	if got := r.matchedBy("m"); got != 32 {
		t.Errorf("prompts are matched by blocks of %d after the restart, want 32", got)
	}
	if note := r.Status(&r.members.All[0].Member, r.Counts()).Note; !strings.Contains(note,
		"its events tell blocks of 32 tokens, where 16 were expected") {
		t.Errorf("note %q", note)
	}
}

// matchedBy returns the tokens of the blocks by which prompts of a model are matched.
func (r *Roster[M]) matchedBy(model string) int {
	chain, _, _ := r.Chain(model)
	return chain.BlockSize()
}

// Two models of a pool have blocks of different sizes. Prompts of each model match, by events and by what was
// sent, and the room of the pool is for both.
func TestEachModelHasItsBlockSize(t *testing.T) {
	for _, mode := range []Mode{Events, Approximate} {
		r := newRoster()
		r.SetIndexing(Indexing{Mode: mode})
		rs := sized(16, 48)
		rs[1].Facts.Model, rs[1].Facts.Models = "other", []string{"other", "adapter"}
		rs[1].Facts.Adapters = []string{"adapter"}
		r.SetMembers(rs, start)
		for i, model := range []string{"m", "other"} {
			chain, adapter, _ := r.Chain(model)
			p := Prompt{Block: chain.BlockSize(), Tokens: 480}
			p.Keys = chain.Append(nil, chain.Root(adapter, ""), count(480))
			m := &r.members.All[i].Member
			if mode == Events {
				r.Apply(m.R.ID, stored(p.Block, count(480)))
			} else {
				r.RecordComputed(m, p, 0, 0)
			}
			depth := make([]int32, r.Holders())
			r.Match(p, depth)
			matches := r.Matches(depth, p)
			if got, want := matches.Tokens(m), 480-p.Block; p.Block != []int{16, 48}[i] || got != want {
				t.Errorf("mode %d: %s by blocks of %d has %d tokens, want %d", mode, model, p.Block, got, want)
			}
			if other := matches.Tokens(&r.members.All[1-i].Member); other != 0 {
				t.Errorf("mode %d: a prompt of %s matches %d tokens at the other model", mode, model, other)
			}
			if note := r.Status(m, r.Counts()).Note; note != "" {
				t.Errorf("mode %d: %s is noted as %q", mode, m.R.ID, note)
			}
		}
		if chain, adapter, ok := r.Chain("adapter"); chain.BlockSize() != 48 || adapter != "adapter" || !ok {
			t.Errorf("mode %d: an adapter by blocks of %d, %q, %v", mode, chain.BlockSize(), adapter, ok)
		}
	}
}

// An approximated engine comes back with blocks of another size: what was sent to it before is forgotten.
func TestAnotherBlockSizeForgetsWhatWasSent(t *testing.T) {
	r := approximate("a", "b")
	for i := range 2 {
		r.computed(i, count(160), 0, 0)
	}
	rs := engines("a", "b")
	rs[0].Facts.BlockSize = 32
	r.SetMembers(rs, start)
	if c := r.Counts(); c.blocks[r.members.All[0].Holder] != 0 || c.blocks[r.members.All[1].Holder] != 10 {
		t.Errorf("%v blocks, want none of a and 10 of b", c.blocks)
	}
}
