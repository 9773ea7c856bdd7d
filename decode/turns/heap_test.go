package turns

import (
	"testing"

	"pgregory.net/rapid"
)

// The first item of a heap is before all others, and each item knows its place, whatever is added and
// removed.
func TestHeapKeepsTheFirstAndThePlaces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := New().waiting
		in := map[*Prompt]bool{}
		var all []*Prompt
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(all) == 0 || rapid.Bool().Draw(t, "add") {
				x := &Prompt{Due: rapid.Int64Range(0, 9).Draw(t, "due")}
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
				if x.place != at+1 || !in[x] || x.Due < q.First().Due {
					t.Fatalf("at place %d is %+v, the first is due at %d", at+1, *x, q.First().Due)
				}
			}
		}
	})
}
