package planner

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
)

// teachLinks lets the planner learn the link of every pair, and returns the number of pairs.
func (f *fleet) teachLinks() int {
	for i := range f.ps {
		for j := range f.ds {
			f.teachLink(&f.ps[i], &f.ds[j], 1./(1<<30))
		}
	}
	return len(f.pl.pairs.links.of)
}

// teachLink lets the planner learn the seconds per byte from p to d.
func (f *fleet) teachLink(p, d *replica.Replica, perByte float64) {
	f.pl.mu.Lock()
	defer f.pl.mu.Unlock()
	x := &flight{pair: Pairing{Prefill: p.ID, Decode: d.ID}, kind: kindOf(p, d)}
	x.configured = f.pl.policy.seed(p, d)
	f.pl.pairs.learn(x, estimate.Range{Low: perByte, High: perByte}, f.now)
}

// planLocal plans a request that may not be split.
func (f *fleet) planLocal(t *testing.T, seed uint32) {
	t.Helper()
	r := f.request(seed, 100)
	r.SplitOK = false
	f.plan(t, r).Release(f.now)
}

// A request that may not be split asks no prefill replica. The learned links stay, even if the table of
// pairs was out of date before.
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
		if got := len(f.pl.pairs.links.of); got != want || want != 81 {
			t.Errorf("%s: %d links of %d are left", name, got, want)
		}
	}
}

// Links of replicas that have left are forgotten when there are too many; links of present replicas are
// kept.
func TestLinksOfReplicasThatLeftAreForgotten(t *testing.T) {
	f := newFleet(9, 9, nil)
	f.plan(t, f.request(1, 100)).Release(f.now)
	f.teachLinks()
	f.prefill.SetMembers(f.ps[:1], f.now)
	f.decode.SetMembers(f.ds[:2], f.now)
	f.planLocal(t, 2)
	links := f.pl.pairs.links.of
	if _, stays := links[Pairing{Prefill: "p1", Decode: "d2"}]; !stays || len(links) != 2 {
		t.Errorf("%d links, that of p1 and d2 kept: %v; want the 2 of replicas that stay", len(links), stays)
	}
	if _, left := f.pl.pairs.links.of[Pairing{Prefill: "p9", Decode: "d9"}]; left {
		t.Error("the link of replicas that have left is kept")
	}
}

// A link belongs to engines by their addresses. What was learned stays with an engine that gets another
// name, even if the policy changes at the same time. It does not pass to an engine that takes over the old
// name.
func TestLinksOutliveNames(t *testing.T) {
	for name, outdate := range map[string]func(f *fleet){
		"another name":                  func(*fleet) {},
		"another name and a new policy": func(f *fleet) { f.set(Policy{}) },
	} {
		f := newFleet(2, 3, func(r *replica.Replica) { r.URL = "http://" + string(r.ID) })
		f.planLocal(t, 1)
		f.teachLinks()
		links := f.pl.pairs.links.of
		ps, ds := slices.Clone(f.ps), slices.Clone(f.ds)
		ps[0].ID, ps[1].ID = "p2", "p1"
		ds[0].ID = "first"
		f.prefill.SetMembers(ps, f.now)
		f.decode.SetMembers(ds[:2], f.now)
		outdate(f)
		f.planLocal(t, 2)
		now := f.pl.pairs.links.of
		for was, is := range map[Pairing]Pairing{
			{Prefill: "p1", Decode: "d1"}: {Prefill: "p2", Decode: "first"},
			{Prefill: "p2", Decode: "d1"}: {Prefill: "p1", Decode: "first"},
			{Prefill: "p1", Decode: "d2"}: {Prefill: "p2", Decode: "d2"},
			{Prefill: "p2", Decode: "d2"}: {Prefill: "p1", Decode: "d2"},
		} {
			if now[is] == nil || now[is] != links[was] {
				t.Errorf("%s: %v has not what %v learned", name, is, was)
			}
		}
	}
}

// Forgetting the links of absent replicas forgets no others, in any order.
func TestLinksOfReplicasThatMoveUpAreKept(t *testing.T) {
	f := newFleet(9, 9, nil)
	f.plan(t, f.request(1, 100)).Release(f.now)
	f.teachLinks()
	f.prefill.SetMembers(f.ps[8:], f.now)
	f.decode.SetMembers(f.ds[7:], f.now)
	f.planLocal(t, 2)
	for _, pair := range []Pairing{{Prefill: "p9", Decode: "d8"}, {Prefill: "p9", Decode: "d9"}} {
		if f.pl.pairs.links.of[pair] == nil {
			t.Errorf("the link of %v is forgotten", pair)
		}
	}
	if n := len(f.pl.pairs.links.of); n != 2 {
		t.Errorf("%d links, want 2", n)
	}
}

// Blocks move only between connectors of one kind. An unknown connector is assumed to be of the other
// replica's kind.
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

// handsOver moves a request of this number of tokens from p1 to d1. took returns the time from the end of the
// prefill until the first token.
func (f *fleet) handsOver(t *testing.T, tokens int, took func(bytes float64) float64) {
	t.Helper()
	b := f.asks(t, tokens)
	f.come(b, f.now.Add(seconds(took(float64(tokens)*f.pl.policy.KVBytesPerToken))))
	f.pass(time.Second)
}

// The fixed time of a handover does not count as the time of the link: short prompts do not make a link
// slow.
func TestHandingOverIsNoMatterOfTheLink(t *testing.T) {
	f := newFleet(1, 1, nil)
	link := f.pl.policy.Links[replica.SameRack]
	for i := range 60 {
		f.handsOver(t, 500+i%7*700, func(bytes float64) float64 { return 0.03 + bytes/link })
	}
	speeds := f.pl.LinkSpeeds(f.now)
	if len(speeds) != 1 || math.Abs(speeds[0].BytesPerSecond/link-1) > 0.25 {
		t.Errorf("learned %+v, want about %g bytes a second", speeds, link)
	}
	r := f.fresh(500)
	r.LocalOK = false
	d, err := f.pl.Explain(r, f.now)
	if err != nil {
		t.Fatal(err)
	}
	bytes := 500 * f.pl.policy.KVBytesPerToken
	if got, want := d.Plans[0].Terms.Transfer, 1e3*(0.03+bytes/link); math.Abs(got/want-1) > 0.15 {
		t.Errorf("a short transfer is put at %g ms, want about %g", got, want)
	}
	f.set(Policy{})
	again, err := f.pl.Explain(r, f.now)
	if err != nil || again.Plans[0].Terms.Transfer != d.Plans[0].Terms.Transfer {
		t.Errorf("a new policy forgets it: %v, %v", again.Plans[0].Terms, err)
	}
}

// Concurrent transfers to one replica take their part of the time, whether the engine moves them one after
// the other or all at once.
func TestTransfersAtOnceMakeNoLinkSlow(t *testing.T) {
	for _, shared := range []bool{false, true} {
		f := newFleet(1, 1, nil)
		link := f.pl.policy.Links[replica.SameRack]
		own := 8000 * f.pl.policy.KVBytesPerToken / link
		for range 20 {
			var all []*Booking
			for range 4 {
				r := f.fresh(8000)
				r.LocalOK = false
				b := f.plan(t, r)
				b.PrefillLease.Done(0, time.Second, f.now)
				if _, err := f.pl.Rebind(b, r, f.now); err != nil {
					t.Fatal(err)
				}
				all = append(all, b)
			}
			began := f.now
			for i, b := range all {
				n := float64(i + 1)
				if shared {
					n = 4
				}
				f.now = began.Add(seconds(n*own + b.DecodeLease.StepTime()))
				f.pl.FirstToken(b, f.now)
			}
			for _, b := range all {
				b.Release(f.now)
			}
			f.pass(time.Second)
			f.says(f.decode, "d1", 0, 0, 0)
			f.says(f.prefill, "p1", 0, 0, 0)
		}
		s := f.pl.LinkSpeeds(f.now)
		if len(s) != 1 || s[0].BytesPerSecond < link*0.6 || s[0].BytesPerSecond > link*1.5 {
			t.Errorf("shared %v: learned %+v, want about %g bytes a second", shared, s, link)
		}
	}
}

// Replicas of two revisions make no pair. A replica of an unknown revision pairs with any.
func TestOnlyEqualRevisionsPair(t *testing.T) {
	for _, tt := range []struct {
		p, d  string
		pairs bool
	}{{"", "", true}, {"a", "a", true}, {"a", "", true}, {"", "a", true}, {"a", "b", false}} {
		why := Incompatible(&replica.Replica{ID: "p", Revision: tt.p}, &replica.Replica{ID: "d", Revision: tt.d})
		if (why == "") != tt.pairs {
			t.Errorf("revisions %q and %q: %q", tt.p, tt.d, why)
		}
	}
}
