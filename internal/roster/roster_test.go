package roster

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// plain is the smallest member that a pool can have.
type plain struct{ Member }

func newRoster(ids ...replica.ID) *Roster[*plain] {
	r, _ := New(Options{}, func() *plain { return new(plain) })
	r.SetMembers(engines(ids...), start)
	return r
}

func engines(ids ...replica.ID) []replica.Replica {
	var rs []replica.Replica
	for _, id := range ids {
		rs = append(rs,
			replica.Replica{ID: id, Facts: replica.Facts{Models: []string{"m"}, BlockSize: 16, Blocks: 1000}})
	}
	return rs
}

// stored is an event of whole blocks from the start of a prompt.
func stored(size int, tokens []uint32) *kv.Batch {
	e := kv.Event{Kind: kv.Stored, Tokens: tokens, BlockSize: size, Group: kv.NoGroup}
	for i := range len(tokens) / size {
		e.Hashes = append(e.Hashes, kv.EngineHash(size*1_000_000+i+1))
	}
	return &kv.Batch{Events: []kv.Event{e}}
}

func (r *Roster[M]) depths(keys []kv.Key) []int32 {
	depth := make([]int32, r.Holders())
	r.Match(Prompt{Keys: keys}, depth)
	return depth
}

func (r *Roster[M]) keys(tokens []uint32) []kv.Key {
	chain, adapter, _ := r.Chain("m")
	return chain.Append(nil, chain.Root(adapter, ""), tokens)
}

// count makes tokens that differ by their place.
func count(n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(i + 1)
	}
	return ids
}

func TestHoldersAreGivenOutAgainWithoutTheirBlocks(t *testing.T) {
	r := newRoster("a", "b")
	ids := count(64)
	if got := r.Apply("b", stored(16, ids)).Stored; got != 4 {
		t.Fatalf("%d blocks stored, want 4", got)
	}
	if got := r.depths(r.keys(ids)); got[0] != 0 || got[1] != 4 {
		t.Fatalf("depths %v, want 0 and 4", got)
	}
	left := r.members.All[1]
	r.SetMembers(engines("a"), start)
	r.SetMembers(engines("a", "c"), start)
	if got := r.depths(r.keys(ids)); len(got) != 2 || got[1] != 0 {
		t.Errorf("depths %v, want two holders and nothing for the newcomer", got)
	}
	if !left.Gone || r.members.All[1].Gone {
		t.Errorf("gone: %v, newcomer %v", left.Gone, r.members.All[1].Gone)
	}
}

func TestTheViewChangesWithTheMembersOnly(t *testing.T) {
	r := newRoster("a", "b")
	before := r.members.View
	r.SetMembers(engines("a", "b"), start)
	if r.members.View != before {
		t.Error("the same members make another view")
	}
	r.SetMembers(engines("b", "a", "b"), start)
	if r.members.View == before || r.members.View.Replicas[0].ID != "b" || len(r.members.View.Replicas) != 2 {
		t.Errorf("another order: %+v", r.members.View)
	}
	if m, ok := r.members.Find("a"); !ok || m.Slot != 1 || m.Holder != 0 {
		t.Errorf("a is %+v", m)
	}
}
