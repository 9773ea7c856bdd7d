package order

import (
	"testing"

	"pgregory.net/rapid"
)

// item is something in a heap.
type item struct {
	due   int64
	place int
}

// The first item of a heap is before all others, and each item knows its place, whatever is added and
// removed.
func TestHeapKeepsTheFirstAndThePlaces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := NewHeap(
			func(a, b *item) bool { return a.due < b.due },
			func(x *item) *int { return &x.place },
		)
		in := map[*item]bool{}
		var all []*item
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(all) == 0 || rapid.Bool().Draw(t, "add") {
				x := &item{due: rapid.Int64Range(0, 9).Draw(t, "due")}
				all = append(all, x)
				q.Add(x)
				in[x] = true
			} else {
				x := all[rapid.IntRange(0, len(all)-1).Draw(t, "which")]
				q.Remove(x) // does nothing the second time
				delete(in, x)
				if x.place != 0 {
					t.Fatalf("it is out, and says place %d", x.place)
				}
			}
			if q.Len() != len(in) {
				t.Fatalf("%d items, want %d", q.Len(), len(in))
			}
			for at, x := range q.h.all {
				if x.place != at+1 || !in[x] || x.due < q.First().due {
					t.Fatalf("at place %d is %+v, the first is due at %d", at+1, *x, q.First().due)
				}
			}
		}
	})
}
