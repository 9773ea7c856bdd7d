package roster

import (
	"testing"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
)

// A member is an engine, which its address tells; its name may change, and may go to another.
func TestMembersAreEnginesNotNames(t *testing.T) {
	at := func(id replica.ID, url string) replica.Replica {
		r := engines(id)[0]
		r.URL = url
		return r
	}
	tokens := count(32)
	tests := map[string]struct {
		now    []replica.Replica
		depths map[replica.ID]int32 // blocks by name, of two that "a" at http://1 had
	}{
		"as before": {
			[]replica.Replica{at("a", "http://1"), at("b", "http://2")}, map[replica.ID]int32{"a": 2, "b": 0},
		},
		"another name": {
			[]replica.Replica{at("c", "http://1"), at("b", "http://2")}, map[replica.ID]int32{"c": 2, "a": 2, "b": 0},
		},
		"names exchanged": {
			[]replica.Replica{at("b", "http://1"), at("a", "http://2")}, map[replica.ID]int32{"b": 2, "a": 0},
		},
		"another engine there": {
			[]replica.Replica{at("a", "http://3"), at("b", "http://2")}, map[replica.ID]int32{"a": 0, "b": 0},
		},
		"the name of one that left": {
			[]replica.Replica{at("b", "http://1")}, map[replica.ID]int32{"b": 2, "a": 2},
		},
		"one address twice": {
			[]replica.Replica{at("c", "http://1"), at("d", "http://1")}, map[replica.ID]int32{"c": 2, "d": 0},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRoster()
			r.SetMembers([]replica.Replica{at("a", "http://1"), at("b", "http://2")}, start)
			r.Apply("a", stored(16, tokens))
			r.SetMembers(tt.now, start)
			r.SetMembers(tt.now, start) // a second look changes nothing
			if len(r.members.All) != len(tt.now) {
				t.Errorf("%d members, want %d", len(r.members.All), len(tt.now))
			}
			depth := r.depths(r.keys(tokens))
			for id, want := range tt.depths {
				m, ok := r.members.Find(id)
				if !ok || depth[m.Holder] != want {
					t.Errorf("%s: found %t, with %d blocks, want %d", id, ok, depth[m.Holder], want)
				}
			}
			for i, m := range r.members.All {
				if m.R.ID != tt.now[i].ID || m.R.URL != tt.now[i].URL || r.members.View.Replicas[i] != m.R {
					t.Errorf("member %d is %s at %s", i, m.R.ID, m.R.URL)
				}
			}
		})
	}
}

// What comes for a member under the name that it had goes to it, until another has that name.
func TestFormerNameIsHeard(t *testing.T) {
	a := engines("a")[0]
	a.URL = "http://1"
	renamed, other := a, a
	renamed.ID, other.URL = "b", "http://2"
	r := newRoster()
	r.SetMembers([]replica.Replica{a}, start)
	r.SetMembers([]replica.Replica{renamed}, start)
	tokens := count(32)
	r.Apply("a", stored(16, tokens))
	if depth := r.depths(r.keys(tokens)); depth[r.members.All[0].Holder] != 2 {
		t.Errorf("%d blocks, want 2", depth[r.members.All[0].Holder])
	}
	r.SetMembers([]replica.Replica{renamed, other}, start)
	r.Apply("a", &kv.Batch{Events: []kv.Event{{Kind: kv.Cleared}}})
	if depth := r.depths(r.keys(tokens)); depth[r.members.All[0].Holder] != 2 {
		t.Errorf("%d blocks after another had the name, want 2", depth[r.members.All[0].Holder])
	}
}
