package planner

import (
	"testing"

	"tandem/internal/replica"
)

// teachLinks lets the planner learn the link of every pair, and returns how many there are.
func (f *fleet) teachLinks() int {
	f.pl.mu.Lock()
	defer f.pl.mu.Unlock()
	for i := range f.ps {
		for j := range f.ds {
			f.pl.pairs.learn(&f.ps[i], &f.ds[j], &f.pl.policy, 1<<30, 1)
		}
	}
	return len(f.pl.pairs.links)
}

// planLocal plans a request that may not be split.
func (f *fleet) planLocal(t *testing.T, seed uint32) {
	t.Helper()
	r := f.request(seed, 100)
	r.SplitOK = false
	f.plan(t, r).Release(f.now)
}

// A request that may not be split asks no prefill replica, which does not mean that there are none: what was
// learned of their links stays, whatever made the table of pairs out of date before.
func TestLinksOutliveRequestsThatAreNotSplit(t *testing.T) {
	for name, outdate := range map[string]func(f *fleet){
		"nothing":      func(*fleet) {},
		"a new policy": func(f *fleet) { f.set(Policy{}) },
	} {
		f := newFleet(9, 9, nil)
		f.planLocal(t, 1)
		want := f.teachLinks()
		outdate(f)
		f.planLocal(t, 2)
		if got := len(f.pl.pairs.links); got != want || want != 81 {
			t.Errorf("%s: %d links of %d are left", name, got, want)
		}
	}
}

// Links of replicas that have left are forgotten when there are too many of them; those of replicas that
// stay are kept.
func TestLinksOfReplicasThatLeftAreForgotten(t *testing.T) {
	f := newFleet(9, 9, nil)
	f.plan(t, f.request(1, 100)).Release(f.now)
	f.teachLinks()
	f.prefill.SetMembers(f.ps[:1], f.now)
	f.decode.SetMembers(f.ds[:2], f.now)
	f.planLocal(t, 2)
	if _, stays := f.pl.pairs.links[Pairing{"p1", "d2"}]; !stays || len(f.pl.pairs.links) != 2 {
		t.Errorf("%d links, that of p1 and d2 kept: %v; want the 2 of replicas that stay", len(f.pl.pairs.links), stays)
	}
	if _, left := f.pl.pairs.links[Pairing{"p9", "d9"}]; left {
		t.Error("the link of replicas that have left is kept")
	}
}

// Blocks go from one connector to another of its kind only. One that an engine does not tell is taken to be the other's.
func TestReplicasOfDifferentConnectorsAreNeverPaired(t *testing.T) {
	f := newFleet(2, 2, func(r *replica.Replica) {
		r.Facts.Connector = map[replica.ID]string{"p1": "nixl", "d1": "other", "d2": "nixl"}[r.ID]
	})
	for seed := range uint32(20) {
		r := f.request(seed, 4000)
		r.LocalOK = false
		b := f.plan(t, r)
		if b.Prefill.ID == "p1" && b.Decode.ID != "d2" {
			t.Errorf("%s is paired with %s", b.Prefill.ID, b.Decode.ID)
		}
		b.Release(f.now)
	}
	for _, p := range f.ps {
		for _, d := range f.ds {
			if fits := Incompatible(&p, &d) == ""; fits != (p.ID != "p1" || d.ID == "d2") {
				t.Errorf("%s with %s: fits is %t", p.ID, d.ID, fits)
			}
		}
	}
}
