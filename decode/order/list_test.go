package order

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// entries lists all of o.
func (o *List) entries() []Entry {
	var all []Entry
	for _, r := range o.runs {
		all = append(all, r.Entries...)
	}
	return all
}

// A list is a sorted list, whatever comes and goes.
func TestAListIsSorted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o List
		var list []Entry
		id := uint64(0)
		for range rapid.IntRange(1, 40).Draw(t, "rounds") {
			leave := rapid.Float64Range(0, 1).Draw(t, "leave")
			for range 50 {
				if len(list) > 0 && rapid.Float64Range(0, 1).Draw(t, "what") < leave {
					at := rapid.IntRange(0, len(list)-1).Draw(t, "which")
					o.Change(list[at], -1)
					list = slices.Delete(list, at, at+1)
					continue
				}
				id++
				e := Entry{rapid.Int64Range(-50, 50).Draw(t, "key"), id, rapid.Int64Range(0, 9).Draw(t, "weight")}
				o.Change(e, 1)
				at, _ := slices.BinarySearchFunc(list, e, Entry.compare)
				list = slices.Insert(list, at, e)
			}
			if got := o.entries(); !slices.Equal(got, list) {
				t.Fatalf("%v, want %v", got, list)
			}
			if len(o.runs) > 2+4*len(list)/mostInRun {
				t.Fatalf("%d runs for %d entries", len(o.runs), len(list))
			}
			limit := rapid.Int64Range(-60, 60).Draw(t, "limit")
			n, weight := 0, int64(0)
			for _, e := range list {
				if e.Key < limit {
					n, weight = n+1, weight+e.Weight
				}
			}
			if gotN, got := o.Before(func(key int64) bool { return key >= limit }); gotN != n || got != weight {
				t.Fatalf("%d of weight %d lie before %d, want %d of %d", gotN, got, limit, n, weight)
			}
		}
	})
}
