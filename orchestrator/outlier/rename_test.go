package outlier

import (
	"slices"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

// An ejected replica stays ejected under another name, with everything known about it. No other replica is
// ejected instead.
func TestRenamedReplicasStayOut(t *testing.T) {
	s := newSet()
	for range 3 {
		s.send("d1", false, start)
	}
	for range 2 {
		s.NotLoaded(Pair{"p1", "d2"}, Failure{Kind: LoadFail}, start)
	}
	s.Rename(replica.RenamesOf(map[replica.ID]int{"p1": 1, "d1": 2, "d2": 3},
		map[replica.ID]int{"p9": 1, "d2": 2, "d1": 3}))
	out := func(id replica.ID) bool { return s.Look(id, Decode, start).Out }
	if !out("d2") || out("d1") {
		t.Errorf("out: d1 %t, d2 %t; want the other way round, since they exchanged their names",
			out("d1"), out("d2"))
	}
	if !s.PairOut(Pair{"p9", "d1"}) || s.PairOut(Pair{"p1", "d2"}) || s.PairOut(Pair{"p9", "d2"}) {
		t.Errorf("pairs that are out: %v, want p9 and d1", s.PairsOut(start))
	}
	if e := s.unloaded["d1"]; e == nil || len(e.with) != 1 || e.with["p9"].n != 2 || s.unloaded["d2"] != nil {
		t.Errorf("failed loads: %v", s.unloaded)
	}
	s.Keep(func(id replica.ID) bool { return id == "d2" })
	if len(s.leg) != 1 || !out("d2") {
		t.Errorf("%d legs are known, want that of d2", len(s.leg))
	}
}

// One that gets the name of another which has left is not held to what that did.
func TestARenamedReplicaIsNotTheOneOfItsNameBefore(t *testing.T) {
	s := newSet()
	for range 3 {
		s.send("d1", false, start)
	}
	s.Rename(replica.RenamesOf(map[replica.ID]int{"d1": 1, "d2": 2}, map[replica.ID]int{"d1": 2}))
	if v := s.Look("d1", Decode, start); v.Out || v.Price > 0 {
		t.Errorf("%+v", v)
	}
}

// A trial that runs while its replica is renamed tells nothing under the old name, and is made again.
func TestATrialOfARenamedReplicaIsMadeAgain(t *testing.T) {
	s := newSet()
	for range 3 {
		s.send("d1", false, start)
	}
	for range 2 {
		s.NotLoaded(Pair{"p1", "d1"}, Failure{Kind: LoadFail}, start)
	}
	now := start.Add(time.Minute)
	under := s.Due(now, everybody)
	if len(under) != 2 {
		t.Fatalf("%d trials are due, want that of the leg and that of the pair", len(under))
	}
	s.Rename(replica.Renames{"d1": "d9", "d9": ""})
	for _, tr := range under {
		if c := s.Passed(tr, now); len(c) > 0 {
			t.Errorf("a trial under the old name changed %+v", c)
		}
	}
	again := s.Due(now, everybody)
	if len(again) != 2 || !slices.ContainsFunc(again, func(tr Trial) bool { return tr.ID == "d9" }) ||
		!slices.ContainsFunc(again, func(tr Trial) bool { return tr.Pair == Pair{"p1", "d9"} }) {
		t.Errorf("due: %+v, want both again under the new name", again)
	}
}

// A half-open leg takes as many requests at once as it did, whatever ran when it was renamed.
func TestAHalfOpenLegIsRenamed(t *testing.T) {
	s := newSet()
	for range 3 {
		s.send("d1", false, start)
	}
	now := start.Add(time.Minute)
	s.Passed(s.Due(now, everybody)[0], now)
	before := s.Begin("d1", Decode, now)
	if !s.Look("d1", Decode, now).Out {
		t.Fatal("half-open, and takes a second request: this test tests nothing")
	}
	s.Rename(replica.Renames{"d1": "d9", "d9": ""})
	before.End()
	if s.Look("d9", Decode, now).Out {
		t.Error("it takes no request, and none runs under its name")
	}
	s.Begin("d9", Decode, now)
	if !s.Look("d9", Decode, now).Out {
		t.Error("it takes a second request at once")
	}
}
