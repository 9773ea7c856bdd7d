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
			Models: []string{"m"}, BlockSize: size, Blocks: 100, Events: replica.EventSource{Endpoint: "tcp://e:1"},
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
			"its blocks have 16 tokens and those of the pool's index 32: they are not matched",
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
			"", "its events tell blocks of 32 tokens, where 16 were expected; its blocks have 32 tokens and those " +
				"of the pool's index 16: they are not matched",
		}},
		{name: "engines that differ", facts: []int{16, 32}, told: []told{{"b", 32}}, want: 16, notes: [2]string{
			"", "its blocks have 32 tokens and those of the pool's index 16: they are not matched",
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
		if got := r.BlockSize(); got != tt.want {
			t.Errorf("%s: blocks of %d are indexed, want %d", tt.name, got, tt.want)
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
	if got := r.BlockSize(); got != 16 {
		t.Fatalf("blocks of %d are indexed within one life, want 16", got)
	}
	r.Forget("a")
	r.Apply("a", stored(32, count(128)))
	if got := r.BlockSize(); got != 32 {
		t.Errorf("blocks of %d are indexed after the restart, want 32", got)
	}
	if note := r.Status(&r.members.All[0].Member, r.Counts()).Note; !strings.Contains(note,
		"its events tell blocks of 32 tokens, where 16 were expected") {
		t.Errorf("note %q", note)
	}
}
