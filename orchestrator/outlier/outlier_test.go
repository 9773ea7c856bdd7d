package outlier

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func everybody(replica.ID) bool { return true }

func newSet() *Set {
	s := &Set{}
	s.Configure(Settings{Failures: 3, Share: 0.5, Base: time.Second, Max: 5 * time.Minute, Trials: true})
	return s
}

// send begins and ends one request on a leg.
func (s *Set) send(id replica.ID, ok bool, now time.Time) []Change {
	a := s.Begin(id, Decode, now)
	defer a.End()
	if ok {
		return a.Good(now)
	}
	return a.Bad(Failure{Kind: ServerError, Took: time.Second}, now)
}

func (s *Set) state(id replica.ID) State { return s.leg[legKey{id, Decode}].state }

func TestFailuresInARowEject(t *testing.T) {
	s := newSet()
	for i, ok := range []bool{true, false, false, true, false, false} {
		if c := s.send("d", ok, start); len(c) > 0 {
			t.Fatalf("after request %d: %+v", i, c)
		}
	}
	c := s.send("d", false, start)
	if len(c) != 1 || c[0].To != Ejected || c[0].ID != "d" ||
		c[0].Cause != "failures in a row, the last: server error" || c[0].Trial != time.Second {
		t.Fatalf("%+v", c)
	}
	if v := s.Look("d", Decode, start); !v.Out {
		t.Error("an ejected leg is not out")
	}
	if v := s.Look("d", Whole, start); v.Out || v.Price != 0 {
		t.Errorf("another leg of it: %+v", v)
	}
}

// Failures that never come three in a row still eject a leg by their share.
func TestALargeShareEjects(t *testing.T) {
	s := newSet()
	now := start
	for i := range 100 {
		now = now.Add(100 * time.Millisecond)
		if c := s.send("d", i%3 == 0, now); len(c) > 0 {
			if i < 6 {
				t.Errorf("ejected after %d requests, too few to tell", i)
			}
			return
		}
	}
	t.Error("two of three failed and it was never ejected")
}

func TestASmallShareDoesNot(t *testing.T) {
	s := newSet()
	now := start
	for i := range 1000 {
		now = now.Add(100 * time.Millisecond)
		if c := s.send("d", i%4 > 0, now); len(c) > 0 {
			t.Fatalf("one of four failed: %+v", c)
		}
	}
}

// The time to the next trial doubles up to a maximum, and shrinks again while the leg is healthy.
func TestTimesBetweenTrialsGrowAndShrink(t *testing.T) {
	s := newSet()
	for range 3 {
		s.send("d", false, start)
	}
	now := start
	var waits []time.Duration
	for range 11 {
		before := now
		for len(s.Due(now, everybody)) == 0 {
			now = now.Add(time.Second)
		}
		waits = append(waits, now.Sub(before))
		s.Failed(Trial{ID: "d", Leg: Decode, era: 1}, Silent, now)
	}
	want := []int{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300}
	for i := range want {
		if int(waits[i].Seconds()) != want[i] {
			t.Fatalf("times to trials %v, want %v seconds", waits, want)
		}
	}
	now = now.Add(5 * time.Minute)
	s.Passed(s.Due(now, everybody)[0], now)
	for range 7 {
		s.send("d", true, now)
	}
	if s.state("d") != InUse {
		t.Fatalf("state %v after seven requests that went well", s.state("d"))
	}
	now = now.Add(10 * time.Minute)
	var c []Change
	for range 3 {
		c = s.send("d", false, now)
	}
	if len(c) != 1 || c[0].Trial != time.Second {
		t.Errorf("ejected again after ten good minutes: %+v, want a trial after a second", c)
	}
}

// The finding that a pair gave a wrong text stays until a trial of the pair succeeds, whatever else happens.
func TestAWrongTextStands(t *testing.T) {
	p := Pair{"p", "d"}
	for name, found := range map[string]func(s *Set){
		"by its own trial": func(s *Set) {
			s.Suspect(p, start)
			s.Failed(s.Due(start, everybody)[0], Wrong, start)
		},
		"by the trial of an end": func(s *Set) { s.WrongText(p, start) },
		"out already": func(s *Set) {
			s.NotLoaded(p, Failure{Kind: LoadFail, Request: 1}, start)
			s.NotLoaded(p, Failure{Kind: LoadFail, Request: 2}, start)
			s.WrongText(p, start)
		},
	} {
		s, now := newSet(), start
		found(s)
		for _, k := range []Kind{Silent, LoadFail, Stuck} {
			s.ExcuseLoad(p, LoadFail, true, start, now)
			s.ExcuseLoad(p, LoadFail, true, start, now)
			s.Restarted("d", now)
			now = now.Add(time.Minute)
			if got := s.PairsWrong(); len(got) != 1 || got[0] != p {
				t.Fatalf("%s: %v give wrong text, want the pair", name, got)
			}
			s.Failed(s.Due(now, everybody)[0], k, now)
		}
		now = now.Add(10 * time.Minute)
		s.Passed(s.Due(now, everybody)[0], now)
		if got := s.PairsWrong(); len(got) != 0 || s.PairOut(p) {
			t.Errorf("%s: %v give wrong text after a trial that went well", name, got)
		}
	}
}

// A half-open leg gets one request at a time, and twice as many after each success. One failure ejects it for
// longer.
func TestHalfOpen(t *testing.T) {
	s := newSet()
	for range 3 {
		s.send("d", false, start)
	}
	now := start.Add(time.Second)
	s.Passed(s.Due(now, everybody)[0], now)
	for _, want := range []int{1, 2, 4} {
		var open []Attempt
		for !s.Look("d", Decode, now).Out {
			open = append(open, s.Begin("d", Decode, now))
		}
		if len(open) != want {
			t.Fatalf("%d requests at once, want %d", len(open), want)
		}
		open[0].Good(now)
		for i := range open {
			open[i].End()
			open[i].End() // harmless
		}
	}
	c := s.send("d", false, now)
	if len(c) != 1 || c[0].To != Ejected || c[0].Trial < 1900*time.Millisecond {
		t.Errorf("%+v, want it ejected for two seconds", c)
	}
}

// The result of a request that began before an ejection does not count.
func TestOldRequestsDoNotBringALegBack(t *testing.T) {
	s := newSet()
	old := s.Begin("d", Decode, start)
	for range 3 {
		s.send("d", false, start)
	}
	old.Good(start)
	old.Bad(Failure{Kind: ServerError}, start)
	if s.state("d") != Ejected || s.leg[legKey{"d", Decode}].ejected.wait != time.Second {
		t.Errorf("%+v", s.leg[legKey{"d", Decode}])
	}
	used := s.Begin("d", Decode, start) // too few others were left
	if c := used.Good(start); len(c) != 1 || c[0].To != HalfOpen {
		t.Errorf("%+v, want what goes well on an ejected leg to count as its trial", c)
	}
}

// A request that also fails on another replica is the cause itself: its failures are removed, ejections
// included.
func TestExcuse(t *testing.T) {
	s := newSet()
	var as []Attempt
	for range 3 {
		a := s.Begin("d", Decode, start)
		a.Bad(Failure{Kind: ServerError}, start)
		as = append(as, a)
	}
	for i := range as {
		as[i].Excuse(true, start)
	}
	if s.state("d") != InUse || s.Look("d", Decode, start).Price != 0 {
		t.Errorf("state %v, price %v", s.state("d"), s.Look("d", Decode, start).Price)
	}
}

// A request that fails everywhere is the cause if a leg answers others, or if no other request fails. If
// several requests fail and none succeeds, their failures count until one succeeds.
func TestWhatSeveralRequestsDidStandsUntilOneGoesWell(t *testing.T) {
	fail := func(s *Set, request uint64) Attempt {
		a := s.Begin("d", Decode, start)
		defer a.End()
		a.Bad(Failure{Kind: ServerError, Request: request}, start)
		return a
	}
	well := func(s *Set, now time.Time) { s.send("d", true, now) }
	trial := func(s *Set, now time.Time) []Trial { return s.Due(now, everybody) }
	later := start.Add(2 * time.Second)
	for _, tt := range []struct {
		name     string
		requests []uint64
		then     func(s *Set) // before the requests are excused
		after    func(s *Set)
		want     State
		excused  int
	}{
		{"one again and again", []uint64{1, 1, 1}, nil, nil, InUse, 3},
		{"several", []uint64{1, 2, 3}, nil, nil, Ejected, 0},
		{
			"several, and one that went well",
			[]uint64{1, 2},
			func(s *Set) { well(s, later) }, nil, InUse, 2,
		},
		{"several, and one that goes well", []uint64{1, 2}, nil, func(s *Set) { well(s, later) }, InUse, 2},
		{
			"several, and a trial that goes well",
			[]uint64{1, 2, 3},
			nil,
			func(s *Set) { s.Passed(trial(s, later)[0], later) }, HalfOpen, 3,
		},
		{
			"several, and a trial that fails",
			[]uint64{1, 2, 3},
			nil,
			func(s *Set) {
				s.Failed(trial(s, later)[0], ServerError, later)
				s.Passed(trial(s, later.Add(5*time.Second))[0], later.Add(5*time.Second))
			}, HalfOpen, 0,
		},
		{
			"several, and another process",
			[]uint64{1, 2, 3},
			nil,
			func(s *Set) {
				s.Restarted("d", later)
				s.Passed(trial(s, later)[0], later)
			}, HalfOpen, 0,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSet()
			var as []Attempt
			for _, request := range tt.requests {
				as = append(as, fail(s, request))
			}
			if tt.then != nil {
				tt.then(s)
			}
			for i := range as {
				as[i].Excuse(true, later)
			}
			if tt.after != nil {
				tt.after(s)
			}
			track := s.leg[legKey{"d", Decode}]
			if got := math.Round(track.recent.excused); track.state != tt.want || got != float64(tt.excused) {
				t.Errorf("it is %v and %v were excused, want %v and %d", track.state, got, tt.want, tt.excused)
			}
		})
	}
}

// The first of several requests was excused while nobody else had failed: it is not once others fail.
func TestTheFirstOfSeveralIsExcusedNoLonger(t *testing.T) {
	s := newSet()
	for request := range uint64(4) {
		a := s.Begin("d", Decode, start)
		a.Bad(Failure{Kind: ServerError, Request: request}, start)
		a.Excuse(true, start)
		a.End()
	}
	if s.state("d") != Ejected {
		t.Errorf("after four different requests that failed elsewhere too, and none that went well, it is %v",
			s.state("d"))
	}
}

// Loads of several requests that failed elsewhere too stand against both ends until one begins well there.
func TestLoadsOfSeveralRequestsStand(t *testing.T) {
	s := newSet()
	pairs := []Pair{{"p1", "d"}, {"p2", "d"}, {"p1", "d"}}
	for i, p := range pairs {
		s.NotLoaded(p, Failure{Kind: LoadFail, Request: uint64(i)}, start)
	}
	now := start.Add(10 * time.Millisecond)
	for _, p := range pairs {
		s.ExcuseLoad(p, LoadFail, true, start, now)
	}
	if s.state("d") != Ejected {
		t.Fatalf("the decode replica that failed with both is %v", s.state("d"))
	}
	s.Began(Pair{"p1", "d"}, now)
	if s.state("d") != InUse {
		t.Errorf("once an answer began well there it is %v", s.state("d"))
	}
}

// A late excuse takes back no later failure between the same two replicas. A good load has made the earlier
// failed loads forgotten, and the failed loads known now are different ones.
func TestALateExcuseTakesBackNoLaterLoad(t *testing.T) {
	s := newSet()
	first := Pair{"p1", "d"}
	s.NotLoaded(first, Failure{Kind: LoadFail, Request: 1}, start)
	s.Began(first, start.Add(time.Second))
	now := start.Add(2 * time.Second)
	for _, p := range []replica.ID{"p1", "p2", "p3"} {
		s.NotLoaded(Pair{p, "d"}, Failure{Kind: LoadFail, Request: 2}, now)
	}
	if s.state("d") != Ejected {
		t.Fatalf("the decode replica that failed with everybody is %v", s.state("d"))
	}
	s.ExcuseLoad(first, LoadFail, true, start, now.Add(time.Second))
	if s.state("d") != Ejected {
		t.Errorf("a failure from before its last good load is taken back, and it is %v", s.state("d"))
	}
	s.ExcuseLoad(first, LoadFail, true, now, now.Add(time.Second))
	if s.state("d") != InUse {
		t.Errorf("one of the three that it was ejected for is taken back, and it is %v", s.state("d"))
	}
}

// Where the requests were the cause of what is known, a failure that nobody looked into is likely theirs too.
// One that was the leg's own counts whole again.
func TestUnexplainedFailuresCountAsTheExplainedOnes(t *testing.T) {
	for _, tt := range []struct {
		name           string
		excused, owned int
		kind           Kind
		want           State
	}{
		{"nothing is known", 0, 0, ServerError, Ejected},
		{"the requests are the cause", 20, 0, ServerError, InUse},
		{"the leg is the cause", 0, 20, ServerError, Ejected},
		{"both are", 20, 20, ServerError, Ejected},
		{"requests are the cause of other failures", 20, 0, Refused, Ejected},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSet()
			for i := range tt.excused + tt.owned {
				a := s.Begin("d", Decode, start)
				a.Bad(Failure{Kind: ServerError}, start)
				if i < tt.excused {
					a.Excuse(true, start)
				} else {
					a.Own(start)
					ok := s.Begin("d", Decode, start)
					ok.Good(start)
				}
			}
			for range 6 {
				a := s.Begin("d", Decode, start)
				a.Bad(Failure{Kind: tt.kind}, start)
			}
			if s.state("d") != tt.want {
				t.Errorf("after six failures in a row it is %v, want %v", s.state("d"), tt.want)
			}
		})
	}
}

// Without trials of the router, the next request is the trial.
func TestWithoutTrialsARequestIsTheTrial(t *testing.T) {
	s := &Set{}
	s.Configure(Settings{Failures: 3, Base: time.Second, Max: time.Minute})
	for range 3 {
		s.send("d", false, start)
	}
	s.NotLoaded(Pair{"p", "d"}, Failure{Kind: LoadFail}, start)
	s.NotLoaded(Pair{"p", "d"}, Failure{Kind: LoadFail}, start)
	if !s.Look("d", Decode, start).Out || !s.PairOut(Pair{"p", "d"}) {
		t.Fatal("not ejected")
	}
	now := start.Add(time.Second)
	if s.Look("d", Decode, now).Out || len(s.PairsOut(now)) > 0 {
		t.Error("no trial was let through")
	}
}

func TestZeroEjectsNobody(t *testing.T) {
	var s Set
	for range 100 {
		s.send("d", false, start)
		s.NotLoaded(Pair{"p", "d"}, Failure{Kind: LoadFail}, start)
	}
	if v := s.Look("d", Decode, start); v.Out || v.Price < 1 {
		t.Errorf("%+v, want a price and no ejection", v)
	}
	if len(s.PairsOut(start)) > 0 {
		t.Error("a pair is ejected")
	}
}

// A restarted engine may be healthy: its trial does not wait for minutes.
func TestARestartMakesTheTrialDue(t *testing.T) {
	s := newSet()
	for range 3 {
		s.send("d", false, start)
	}
	s.Failed(Trial{ID: "d", Leg: Decode, era: 1}, Silent, start)
	s.Restarted("d", start)
	if len(s.Due(start, everybody)) != 1 {
		t.Error("no trial is due")
	}
}

// Failures before a restart belong to another process: however long it failed, the times between trials begin
// anew.
func TestARestartBeginsTheTimesAnew(t *testing.T) {
	s, now := newSet(), start
	for range 3 {
		s.send("d", false, now)
	}
	for range 8 {
		now = now.Add(5 * time.Minute)
		s.Failed(s.Due(now, everybody)[0], Silent, now)
	}
	s.Restarted("d", now)
	s.Failed(s.Due(now, everybody)[0], Silent, now)
	if early, due := s.Due(now.Add(900*time.Millisecond),
		everybody), s.Due(now.Add(time.Second), everybody); len(early) > 0 || len(due) != 1 {
		t.Errorf("after 0.9 s %d trials are due, after 1 s %d", len(early), len(due))
	}
}

// An unreachable replica gets no trial. The trial is not delayed by this: it is made as soon as the replica
// is back.
func TestNobodyTriesWhoIsAway(t *testing.T) {
	s, now := newSet(), start
	for range 3 {
		s.send("d", false, now)
		s.NotLoaded(Pair{"p", "e"}, Failure{Kind: LoadFail}, now)
	}
	away := func(id replica.ID) bool { return id != "d" && id != "p" }
	for range 60 {
		now = now.Add(time.Second)
		if due := s.Due(now, away); len(due) > 0 {
			t.Fatalf("%+v is due", due)
		}
	}
	if due := s.Due(now, everybody); len(due) != 2 {
		t.Errorf("%+v is due, want the leg and the pair", due)
	}
}

// Whatever happens in whatever order: no request is counted twice in a half-open leg. A leg with nothing
// against it comes to cost nothing. Trials are given out once. Active holds as long as a leg or pair is
// ejected.
func TestAnyHistory(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		s, now := newSet(), start
		ids := []replica.ID{"a", "b", "c"}
		var open []Attempt
		var due []Trial
		for range 400 {
			now = now.Add(time.Duration(rnd.IntN(800)) * time.Millisecond)
			id := ids[rnd.IntN(3)]
			p := Pair{id, ids[rnd.IntN(3)]}
			switch rnd.IntN(9) {
			case 0, 1:
				open = append(open, s.Begin(id, Leg(rnd.IntN(int(legs))), now))
			case 2:
				s.NotLoaded(p, Failure{Kind: LoadFail}, now)
			case 3:
				s.Loaded(p, now)
			case 4:
				for _, tr := range s.Due(now, everybody) {
					if slices.Contains(due, tr) {
						t.Fatalf("seed %d: %+v is given out twice", seed, tr)
					}
					due = append(due, tr)
				}
			case 5:
				for _, tr := range due {
					if rnd.IntN(2) == 0 {
						s.Failed(tr, Silent, now)
					} else {
						s.Passed(tr, now)
					}
				}
				due = nil
			default:
				if len(open) == 0 {
					continue
				}
				i := rnd.IntN(len(open))
				switch rnd.IntN(3) {
				case 0:
					open[i].Good(now)
				case 1:
					open[i].Bad(Failure{Kind(rnd.IntN(int(Unmoved))), time.Second, rnd.Uint64N(3)}, now)
				}
				open[i].End()
				open = slices.Delete(open, i, i+1)
			}
			for key, tr := range s.leg {
				if tr.half.flying < 0 || tr.half.flying > len(open) || tr.recent.row < 0 || tr.recent.bad < 0 ||
					tr.ejected.wait > 5*time.Minute {
					t.Fatalf("seed %d: %+v: %+v", seed, key, tr)
				}
				if tr.state != InUse && !s.Active(now) {
					t.Fatalf("seed %d: %+v is %v and the set is not active", seed, key, tr.state)
				}
			}
		}
		for i := range open {
			open[i].End()
		}
		for range 40 {
			now = now.Add(5 * time.Minute)
			for _, tr := range append(due, s.Due(now, everybody)...) {
				s.Passed(tr, now)
			}
			due = nil
			for key := range s.leg {
				a := s.Begin(key.id, key.leg, now)
				a.Good(now)
				a.End()
			}
		}
		for _, st := range s.Status(now) {
			t.Errorf("seed %d: after three good hours there is still %+v", seed, st)
		}
	}
}

// A trial that gets stuck tells the requests that wait for blocks of the pair. Such trials are made more and
// more rarely, since each leaves blocks behind. A trial that fails at once costs nothing.
func TestTrialsThatGetStuck(t *testing.T) {
	for _, c := range []struct {
		kind    Kind
		longest time.Duration
	}{{Stuck, time.Minute}, {LoadFail, pairMax}} {
		var s Set
		s.Configure(Settings{Failures: 3, Base: time.Second, Max: time.Minute, Trials: true})
		p := Pair{"p", "d"}
		now := start
		longest := time.Duration(0)
		if !s.Suspect(p, now) {
			t.Fatal("a pair that nothing is known of cannot be suspected")
		}
		last := now
		for range 1000 {
			for _, tr := range s.Due(now, everybody) {
				longest, last = max(longest, now.Sub(last)), now
				s.Failed(tr, c.kind, now)
			}
			now = now.Add(time.Second)
		}
		if longest != c.longest {
			t.Errorf("%v: %v between two trials, want %v", c.kind, longest, c.longest)
		}
		if got := s.StuckSince(p, start); got != (c.kind == Stuck) {
			t.Errorf("%v: stuck %v", c.kind, got)
		}
		if s.StuckSince(p, last) || s.StuckSince(Pair{"p", "e"}, start) {
			t.Errorf("%v: stuck after its last trial, or another pair is", c.kind)
		}
	}
}

// Failed loads that stand are the end's own once a trial has failed, or once the end is another process. A
// later success there does not put them on the requests.
func TestLoadsThatStandMayBeTheEndsOwn(t *testing.T) {
	for name, happens := range map[string]func(s *Set, now time.Time){
		"a trial fails": func(s *Set, now time.Time) { s.Failed(s.Due(now, everybody)[0], LoadFail, now) },
		"a restart":     func(s *Set, now time.Time) { s.Restarted("d", now) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSet()
			pairs := []Pair{{"p1", "d"}, {"p2", "d"}, {"p3", "d"}}
			for i, p := range pairs {
				s.NotLoaded(p, Failure{Kind: LoadFail, Request: uint64(i)}, start)
			}
			for _, p := range pairs {
				s.ExcuseLoad(p, LoadFail, true, start, start)
			}
			now := start.Add(2 * time.Second)
			happens(s, now)
			s.Began(pairs[0], now)
			if d := s.leg[legKey{"d", Decode}]; d.state != Ejected || d.recent.excused > 0 {
				t.Errorf("%v were excused, and it is %v", d.recent.excused, d.state)
			}
		})
	}
}

// What stands is of the last minute, however long nothing goes well.
func TestLoadsThatStandAge(t *testing.T) {
	s := newSet()
	pairs := []Pair{{"p1", "d"}, {"p2", "d"}}
	now := start
	for i := range 1200 {
		p := pairs[i%2]
		s.NotLoaded(p, Failure{Kind: LoadFail, Request: uint64(i)}, now)
		s.ExcuseLoad(p, LoadFail, true, now, now)
		now = now.Add(time.Second)
	}
	s.Began(pairs[0], now)
	if n := s.leg[legKey{"d", Decode}].recent.excused; n > 70 {
		t.Errorf("%.0f failures of the last minute were excused, of one a second", n)
	}
}
