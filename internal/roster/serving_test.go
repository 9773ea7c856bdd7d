package roster

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tandem-router/tandem/internal/replica"
)

// The set of members that serve a model is remembered for a list of members, and computed again for the next
// list.
func TestServingFollowsTheMembers(t *testing.T) {
	r := newRoster("a", "b")
	serving := func(model string) []bool {
		r.members.Lock()
		defer r.members.Unlock()
		return slices.Clone(r.members.Serving(model))
	}
	expect := func(when, model string, want ...bool) {
		t.Helper()
		if got := serving(model); !slices.Equal(got, want) {
			t.Errorf("%s: %s is served by %v, want %v", when, model, got, want)
		}
	}
	for range 2 { // the second time from memory
		expect("at first", "m", true, true)
		expect("at first", "sql", false, false)
	}
	rs := engines("b", "a", "c")
	rs[0].Facts.Models = []string{"m", "sql"}
	rs[1].Facts.Models = nil
	r.SetMembers(rs, start)
	for range 2 {
		expect("afterwards", "m", true, false, true)
		expect("afterwards", "sql", true, false, false)
	}
	r.SetMembers([]replica.Replica{}, start)
	expect("without members", "m")
}

// Models that the same members serve have the same name of the set, whatever else there is.
func TestServersAreNamedByWhoTheyAre(t *testing.T) {
	rs := engines("a", "b", "c")
	rs[0].Facts.Models = []string{"m", "sql"}
	rs[1].Facts.Models = []string{"m", "sql", "own"}
	rs[2].Facts.Models = []string{"other"}
	r := newRoster()
	r.SetMembers(rs, start)
	m, own := r.Servers("m", nil), r.Servers("own", nil)
	other := r.Servers("other", nil)
	if m == own || m == other || own == other || m == 0 {
		t.Errorf("m %x, own %x, other %x", m, own, other)
	}
	if sql, none := r.Servers("sql", nil), r.Servers("made up", nil); sql != m || none != 0 {
		t.Errorf("sql %x, want that of m, %x; made up %x", sql, m, none)
	}
	without := r.Servers("m", []replica.ID{"a", "c", "gone"})
	if without != own || r.Servers("m", []replica.ID{"a", "b"}) != 0 {
		t.Errorf("m without a is %x, want that of b alone, %x", without, own)
	}
	slices.Reverse(rs)
	if r.SetMembers(rs, start); r.Servers("m", nil) != m {
		t.Error("another name in another order")
	}
}

// Clients ask for models that do not exist, and each could ask for another.
func TestServingRemembersNoModelThatNobodyServes(t *testing.T) {
	r := newRoster("a", "b")
	r.members.Lock()
	defer r.members.Unlock()
	for i := range 1000 {
		if served := r.members.Serving(fmt.Sprint("made up ", i)); slices.Contains(served, true) {
			t.Fatalf("somebody serves a model that was made up: %v", served)
		}
	}
	r.members.Serving("m")
	if got := len(r.members.byModel); got != 1 {
		t.Errorf("%d models are remembered, want the one that is served", got)
	}
}
