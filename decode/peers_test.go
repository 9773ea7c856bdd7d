package decode

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
)

// several are routers with the same two replicas, and one more router that books all their requests: it sees
// what they see together.
type several struct {
	routers []*Pool
	one     *Pool
	now     time.Time
}

func newSeveral(n int) *several {
	s := &several{now: start}
	for range n + 1 {
		p := configured()
		p.Configure(Settings{LoadTTL: usualTTL, ExpectedOutput: 160})
		p.SetMembers([]replica.Replica{engine("d1", 5000), engine("d2", 5000)}, start)
		s.routers = append(s.routers, p)
	}
	s.one, s.routers = s.routers[n], s.routers[:n]
	return s
}

// share lets every router report to all others, over the wire.
func (s *several) share(t interface{ Fatal(...any) }) {
	for i, from := range s.routers {
		wire, err := json.Marshal(from.PeerLoads(s.now))
		if err != nil {
			t.Fatal(err)
		}
		for j, to := range s.routers {
			var said []PeerLoad
			if err := json.Unmarshal(wire, &said); err != nil {
				t.Fatal(err)
			}
			if i != j {
				to.MergePeer(string(rune('a'+i)), said, s.now)
			}
		}
	}
}

// pair is one booking in both worlds.
type pair [2]*Lease

func (p pair) each(f func(*Lease)) { f(p[0]); f(p[1]) }

// TestRoutersSeeTogetherWhatOneWouldSee: whichever router books, each offers the same candidates as a router
// that booked everything.
func TestRoutersSeeTogetherWhatOneWouldSee(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSeveral(rapid.IntRange(2, 4).Draw(t, "routers"))
		var live []pair
		sent := map[replica.ID]int{}
		for range rapid.IntRange(1, 12).Draw(t, "bookings") {
			q := &Query{Model: "m", Tokens: rapid.IntRange(1, 3000).Draw(t, "tokens"), MaxTokens: 160}
			schedule := Schedule{
				Local:   rapid.Bool().Draw(t, "local"),
				AdmitAt: s.now.Add(time.Duration(rapid.IntRange(0, 1).Draw(t, "reserved")) * time.Hour),
			}
			if schedule.Local {
				schedule.AdmitAt = s.now
			}
			at := rapid.IntRange(0, 1).Draw(t, "replica")
			by := s.routers[rapid.IntRange(0, len(s.routers)-1).Draw(t, "router")]
			var both pair
			for i, p := range []*Pool{by, s.one} {
				c, _, _ := p.Candidates(q, s.now, nil, nil)
				if len(c) != 2 {
					t.Fatalf("%d candidates", len(c))
				}
				both[i] = p.Book(&c[at], q, schedule, s.now)
			}
			if rapid.Bool().Draw(t, "sent") {
				both.each(func(l *Lease) { l.MarkSent(s.now) })
				sent[both[0].member.R.ID]++
			}
			live = append(live, both)
			s.share(t)
			s.now = s.now.Add(time.Microsecond) // so that engines compute them in this order
		}
		s.now = s.now.Add(time.Second)
		for id, n := range sent { // one router polls the report, the others get it from this router
			report := load(s.now, n, 0.3)
			s.routers[0].Observe(id, report, s.now)
			s.one.Observe(id, report, s.now)
		}
		s.share(t)
		s.share(t) // the counts from the report are shared too
		for _, p := range s.routers {
			sees(t, p, s.one, s.now)
		}
		for _, both := range live {
			both.each(func(l *Lease) { l.Release(s.now) })
		}
		s.share(t)
		for _, p := range s.routers {
			sees(t, p, s.one, s.now)
			for _, m := range p.members.All {
				if e := m.remote; e.Sequences+e.Queued+e.Arriving+e.Sent+e.Promised+e.Growth+e.Held+e.Reserved != 0 ||
					e.Moving != 0 || e.Work != 0 {
					t.Fatalf("%+v is left of nobody", e)
				}
			}
		}
	})
}

// sees fails if got and want offer different candidates.
func sees(t *rapid.T, got, want *Pool, now time.Time) {
	q := &Query{Model: "m", Tokens: 16, MaxTokens: 16}
	g, _, _ := got.Candidates(q, now, nil, nil)
	w, _, _ := want.Candidates(q, now, nil, nil)
	if len(g) != len(w) {
		t.Fatalf("%d candidates, want %d", len(g), len(w))
	}
	for i := range g {
		a, b := &g[i], &w[i]
		if a, b := a.Local.Wait, b.Local.Wait; math.Abs(a-b) > 1e-8 {
			t.Fatalf("replica %d: %g s of prompts to compute, by one router %g", i, a, b)
		}
		if a, b := a.Local.Busy, b.Local.Busy; math.Abs(a-b) > 1e-8 {
			t.Fatalf("replica %d: nobody gets in for %g s, by one router %g", i, a, b)
		}
		if a, b := a.Arriving, b.Arriving; math.Abs(a-b) > 1e-6 {
			t.Fatalf("replica %d: the blocks of %g prompts a second come, by one router %g", i, a, b)
		}
		if a, b := a.Local.Arrivals, b.Local.Arrivals; math.Abs(a-b) > 1e-6 {
			t.Fatalf("replica %d: %g requests a second come, by one router %g", i, a, b)
		}
		if a.Free != b.Free || a.Reserved != b.Reserved || a.Inbound != b.Inbound ||
			a.reads != b.reads || a.Decode.Running != b.Decode.Running ||
			a.Local.Active != b.Local.Active || a.Unknown != b.Unknown {
			t.Fatalf("replica %d: free %d, reserved %d, inbound %v, running %v, active %v, unknown %v; one router: "+
				"%d, %d, %v, %v, %v, %v", i, a.Free, a.Reserved, a.Inbound,
				a.Decode.Running, a.Local.Active, a.Unknown,
				b.Free, b.Reserved, b.Inbound, b.Decode.Running, b.Local.Active, b.Unknown)
		}
	}
}

// A prompt that another router sends in pieces delays requests between its pieces by one piece, as an own
// prompt does.
func TestPromptsOfPeersInPiecesHoldNobodyUp(t *testing.T) {
	here, one := inPieces(), inPieces()
	peer := inPieces()
	for _, p := range []*Pool{peer, one} {
		l, _ := alone(t, p, 20_000, start)
		defer l.Release(start)
	}
	now := start.Add(500 * time.Millisecond)
	here.MergePeer("b", peer.PeerLoads(now), now)
	for _, tokens := range []int{1000, 30_000} {
		price := func(p *Pool) Candidate {
			q := &Query{Model: "m", Tokens: tokens, MaxTokens: 16, Pieces: true}
			c, _, _ := p.Candidates(q, now, nil, nil)
			return c[0]
		}
		got, want := price(here).Local, price(one).Local
		if got.Wait != want.Wait || got.Busy != want.Busy || got.Delayed != want.Delayed {
			t.Errorf("%d tokens: wait %v, busy %v, delayed %v; by one router %v, %v, %v", tokens, got.Wait, got.Busy,
				got.Delayed, want.Wait, want.Busy, want.Delayed)
		}
	}
}

// Other routers learn of a sent piece and of a computed piece as soon as of other bookings. Otherwise they
// would count the piece as a request of an unknown client.
func TestPiecesAreNewsForPeers(t *testing.T) {
	p := inPieces()
	defer stream1(t, p).Release(start)
	l, _ := alone(t, p, 4000, start)
	defer l.Release(start)
	now := start
	for _, do := range []func() any{
		func() any { return l.Next(now, nil) },
		func() any { l.Computed(true, -1, Pauses{}, now); return nil },
	} {
		before, told := p.Changes(), p.PeerLoads(now)[0]
		do()
		is := p.PeerLoads(now)[0]
		if !is.Changed(&told) {
			t.Fatalf("nothing has changed: %+v", is)
		}
		if p.Changes() == before {
			t.Errorf("nobody is told that %d are sent, of whom %d were", is.Sent, told.Sent)
		}
		now = now.Add(100 * time.Millisecond)
	}
	l.Next(now, nil)
	other, _ := alone(t, p, 3000, now)
	defer other.Release(now)
	before := p.Changes()
	for range 3 {
		if other.Next(now, nil).Upto > 0 {
			t.Fatal("it is its turn")
		}
	}
	if p.Changes() != before {
		t.Error("who asks in vain is news")
	}
}

// A router of an older version does not report which of its sequences decode. Sequences whose blocks are
// there count as decoding, and as long as the known ones.
func TestPeersOfAnOlderVersionDecodeToo(t *testing.T) {
	s := newSeveral(2)
	q := &Query{Model: "m", Tokens: 1600, MaxTokens: 160}
	for _, p := range s.routers {
		for range 2 {
			c, _, _ := p.Candidates(q, s.now, nil, nil)
			l := p.Book(&c[0], q, Schedule{AdmitAt: s.now}, s.now)
			defer l.Release(s.now)
			l.MarkSent(s.now)
			l.FirstToken(s.now)
		}
	}
	told := s.routers[1].PeerLoads(s.now)
	for i := range told {
		told[i].Computing = 0
		told[i].Known = 0
		told[i].Context = 0
	}
	p := s.routers[0]
	p.MergePeer("b", told, s.now)
	var got estimate.Load
	for _, m := range p.members.All {
		is := m.decodes()
		got.Sequences += is.Sequences
		got.Tokens += is.Tokens
	}
	if want := (estimate.Load{Sequences: 4, Tokens: 4 * 1600}); got != want {
		t.Errorf("%.0f sequences of %.0f tokens are decoded, want %.0f of %.0f",
			got.Sequences, got.Tokens, want.Sequences, want.Tokens)
	}
}

// The bookings of a router that no longer reports do not count.
func TestASilentRouterIsForgotten(t *testing.T) {
	s := newSeveral(2)
	q := &Query{Model: "m", Tokens: 1600, MaxTokens: 160}
	c, _, _ := s.routers[0].Candidates(q, s.now, nil, nil)
	l := s.routers[0].Book(&c[0], q, Schedule{AdmitAt: s.now}, s.now)
	defer l.Release(s.now)
	s.share(t)
	if got := s.routers[1].members.All[0].remote.Promised; got != l.entry.Whole() {
		t.Fatalf("%d blocks promised elsewhere, want %d", got, l.entry.Whole())
	}
	s.routers[1].MergePeer("a", nil, s.now)
	if got := s.routers[1].members.All[0].remote; got != (PeerLoad{}) {
		t.Errorf("%+v is left", got)
	}
}

// A load report that another router polled is as good as an own one. But it is not passed on, because it
// would look younger each time.
func TestReportsAreToldOnce(t *testing.T) {
	s := newSeveral(3)
	s.routers[0].Observe("d1", load(s.now, 1, 0.5), s.now)
	s.routers[2].MergePeer("a", s.routers[0].PeerLoads(s.now), s.now)
	if used := s.routers[2].Status(s.now)[0].Usage; used != 0.5 {
		t.Fatalf("usage %v, want that of the report", used)
	}
	if r := s.routers[2].PeerLoads(s.now)[0].Report; r != nil {
		t.Errorf("%+v is told on", r)
	}
	older := load(s.now.Add(-time.Second), 1, 0.9)
	s.routers[1].Observe("d1", older, s.now)
	s.routers[2].MergePeer("b", s.routers[1].PeerLoads(s.now), s.now)
	if used := s.routers[2].Status(s.now)[0].Usage; used != 0.5 {
		t.Errorf("usage %v after an older report", used)
	}
}

// A router that reports nonsense is believed as far as the report can be true.
func TestNonsenseOverflowsNothing(t *testing.T) {
	p := newSeveral(1).one
	mad := PeerLoad{
		ID: "d1", Sequences: 2 << 30, Promised: math.MaxInt, Held: -7, Moving: math.MinInt, Work: 90 * time.Hour,
		Rho: math.Inf(1),
	}
	p.MergePeer("mad", []PeerLoad{mad}, start)
	p.MergePeer("as mad", []PeerLoad{{ID: "d1", Rho: math.NaN(), Work: math.MinInt64}}, start)
	if got, want := p.members.All[0].remote, (PeerLoad{
		Sequences: 1 << 30, Promised: 1 << 30, Work: time.Hour, Rho: 1000,
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
