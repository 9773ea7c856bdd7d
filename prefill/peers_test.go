package prefill

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// tell lets one router report to another, over the wire.
func tell(t interface{ Fatal(...any) }, from *Pool, name string, to *Pool, now time.Time) {
	wire, err := json.Marshal(from.PeerLoads(now))
	if err != nil {
		t.Fatal(err)
	}
	var said []PeerLoad
	if err := json.Unmarshal(wire, &said); err != nil {
		t.Fatal(err)
	}
	to.MergePeer(name, said, now)
}

// TestRoutersSeeTogetherWhatOneWouldSee: whichever router books, each router offers what a single router
// with all bookings would offer.
func TestRoutersSeeTogetherWhatOneWouldSee(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := newPool("p1", "p2")
		b := newPool("p1", "p2")
		one := newPool("p1", "p2")
		now := start
		var live []*Lease
		for range rapid.IntRange(1, 12).Draw(t, "bookings") {
			tokens, at := rapid.IntRange(1, 50_000).Draw(t, "tokens"), rapid.IntRange(0, 1).Draw(t, "replica")
			by := rapid.SampledFrom([]*Pool{a, b}).Draw(t, "router")
			for _, p := range []*Pool{by, one} {
				live = append(live, p.Book(&p.ask(tokens, now)[at], now))
			}
			now = now.Add(time.Microsecond) // so that engines compute them in this order
		}
		both := func() {
			tell(t, a, "a", b, now)
			tell(t, b, "b", a, now)
		}
		both()
		running := one.members.All[0].queue.count
		now = now.Add(time.Duration(rapid.IntRange(1, 10_000).Draw(t, "ms")) * time.Millisecond)
		for _, p := range []*Pool{a, one} { // a polls the report, and b gets it from a
			p.Observe("p1", load(now, running, 0, 0.4), now)
		}
		both()
		both()
		sees(t, a, one, now)
		sees(t, b, one, now)
		for i := 0; i < len(live); i += 2 { // in the order of booking
			live[i].Release(now)
			live[i+1].Release(now)
			now = now.Add(time.Duration(rapid.IntRange(0, 1000).Draw(t, "more ms")) * time.Millisecond)
			both()
			sees(t, a, one, now)
			sees(t, b, one, now)
		}
		a.MergePeer("b", nil, now)
		if got := a.members.All[0].remote; got != (PeerLoad{}) {
			t.Fatalf("%+v is left of a router that is silent", got)
		}
	})
}

func sees(t *rapid.T, got, want *Pool, now time.Time) {
	for i, w := range want.ask(1000, now) {
		g := got.ask(1000, now)[i]
		if math.Abs(g.Wait-w.Wait) > 1e-8 {
			t.Fatalf("replica %d: %v s to wait, want %v", i, g.Wait, w.Wait)
		}
		if g.Waiting != w.Waiting || g.Queued != w.Queued || math.Abs(g.Usage-w.Usage) > 1e-9 ||
			math.Abs(g.Rho-w.Rho) > 1e-6 || math.Abs(g.Arrivals-w.Arrivals) > 1e-6 || g.Unknown != w.Unknown {
			t.Fatalf("replica %d: %+v, want %+v", i, g, w)
		}
	}
}

// Work of other routers in between teaches nothing about a replica's speed.
func TestNothingIsLearnedAmongOthersWork(t *testing.T) {
	p, other := newPool("p1"), newPool("p1")
	defer other.Book(&other.ask(40_000, start)[0], start).Release(start)
	tell(t, other, "b", p, start)
	for i := range 8 {
		now := start.Add(time.Duration(i) * time.Minute)
		p.Book(&p.ask(4000, now)[0], now).Done(0, 30*time.Second, now.Add(30*time.Second))
	}
	if n := p.members.All[0].learned.Fit.Samples(); n != 0 {
		t.Errorf("%d samples, want none", n)
	}
	p.MergePeer("b", nil, start)
	now := start.Add(time.Hour)
	p.Book(&p.ask(4000, now)[0], now).Done(0, 30*time.Second, now.Add(30*time.Second))
	if n := p.members.All[0].learned.Fit.Samples(); n != 1 {
		t.Errorf("%d samples once alone, want one", n)
	}
}

// A router that reports nonsense is believed as far as the report can be true.
func TestNonsenseOverflowsNothing(t *testing.T) {
	p := newPool("p1")
	mad := PeerLoad{
		ID: "p1", Requests: 2 << 30, Tokens: -7, Work: 90 * time.Hour, Fresh: math.MaxInt, Sending: math.MinInt,
		Rho: math.Inf(1),
	}
	p.MergePeer("mad", []PeerLoad{mad, {ID: "p1", Rho: math.NaN(), Work: math.MinInt64}}, start)
	if got, want := p.members.All[0].remote, (PeerLoad{
		Requests: 1 << 30, Work: time.Hour, Fresh: 1 << 30, Rho: 1000,
	}); got != want {
		t.Errorf("%+v is counted, want %+v", got, want)
	}
	if mad.Plausible() {
		t.Errorf("%+v is plausible", mad)
	}
	for _, s := range p.PeerLoads(start) {
		if !s.Plausible() {
			t.Errorf("%+v is told and not plausible", s)
		}
	}
}
