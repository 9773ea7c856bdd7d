package observe

import "testing"

// Subscribers of decisions that never read, in any number: adding a record waits for none. Each keeps as
// much as its buffer holds, and learns how many it lost.
func TestSlowWatchersHoldUpNobody(t *testing.T) {
	const watchers = 500
	const buffer, added = 256, 1000
	g := NewRing(10)
	var all []func() uint64
	for range watchers {
		records, lost, stop := g.Watch(buffer)
		defer stop()
		all = append(all, func() uint64 { return lost() + uint64(len(records))<<32 })
	}
	for range added { // would stand still here for good
		g.Add(&Record{})
	}
	for i, state := range all {
		if kept, lost := state()>>32, state()&(1<<32-1); kept != buffer || lost != added-buffer {
			t.Fatalf("watcher %d: %d kept and %d lost, want %d and %d", i, kept, lost, buffer, added-buffer)
		}
	}
}

func TestRingKeepsTheNewest(t *testing.T) {
	g := NewRing(3)
	records, lost, stop := g.Watch(2)
	defer stop()
	for _, id := range []string{"a", "b", "c", "d"} {
		g.Add(&Record{ID: id})
	}
	ids := func(rs []*Record) (s string) {
		for _, r := range rs {
			s += r.ID
		}
		return s
	}
	if got := ids(g.Newest(10)); got != "dcb" {
		t.Errorf("newest = %q, want dcb", got)
	}
	g.Resize(2)
	g.Add(&Record{ID: "e"})
	if got := ids(g.Newest(10)); got != "ed" {
		t.Errorf("after resize newest = %q, want ed", got)
	}
	if g.Find("d") == nil || g.Find("a") != nil {
		t.Errorf("find: d %v, a %v; want d only", g.Find("d"), g.Find("a"))
	}
	if got := (<-records).ID + (<-records).ID; got != "ab" || lost() != 3 {
		t.Errorf("watched %q and lost %d, want ab and 3", got, lost())
	}
}
