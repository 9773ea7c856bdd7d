package roster

import (
	"sync"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

// TestEverythingAtOnce makes all calls of a roster at the same time, for the race detector, and checks
// afterwards whether the roster still works.
func TestEverythingAtOnce(t *testing.T) {
	r := newRoster("a", "b")
	followed := engines("a", "b", "c")
	for i := range followed {
		followed[i].Facts.Events = replica.EventSource{Endpoint: "tcp://e:1"}
	}
	const rounds = 200
	var wg sync.WaitGroup
	at := func(do func(i int)) {
		wg.Go(func() {
			for i := range rounds {
				do(i)
			}
		})
	}
	ids := count(160)
	at(func(i int) { r.SetMembers(followed[:i%3], start) })
	at(func(i int) { r.SetMembers(engines("a", "b"), start) })
	at(func(i int) { r.SetIndexing(Indexing{Mode: Mode(i % 3), ChunkBytes: 64 * (i % 2), CharsPerToken: 4}) })
	at(func(i int) { r.Apply("a", stored(16*(1+i%2), ids)) })
	at(func(i int) { r.Forget("b") })
	at(func(i int) { r.Expire(start.Add(time.Duration(i) * time.Second)) })
	at(func(i int) { r.SetTrust("a", replica.Live) })
	at(func(i int) { r.SetHealthy("a", i%2 == 0, "") })
	at(func(i int) { r.ReportedBlockSize("a") })
	at(func(i int) { r.depths(r.keys(ids)) })
	at(func(i int) {
		r.members.Lock()
		defer r.members.Unlock()
		for _, m := range r.members.All {
			_ = r.Status(&m.Member, Counts{})
			x := r.Matches(nil, Prompt{Tokens: 100})
			_ = x.Tokens(&m.Member)
		}
	})
	at(func(i int) {
		r.members.Lock()
		members := r.members.All
		r.members.Unlock()
		for _, m := range members {
			for _, p := range []Prompt{
				{Keys: r.keys(ids)},
				r.textKeys("a text of more than sixty-four bytes, which is what a chunk of it has here"),
			} {
				r.Speculate(&m.Member, p, time.Second, start)
				r.RecordComputed(&m.Member, p, 160, i%160)
			}
		}
		r.Counts()
	})
	wg.Wait()
	r.SetIndexing(Indexing{Mode: Approximate})
	r.SetMembers(engines("x"), start)
	r.computed(0, ids, 0, 0)
	if got := r.depths(r.keys(ids)); got[r.members.All[0].Holder] != 10 {
		t.Errorf("depths %v afterwards, want 10 for the newcomer", got)
	}
}
