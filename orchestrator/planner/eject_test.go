package planner

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// ejecting is a fleet that ejects failing replicas. Trials are made outside of the planner.
func everybody(replica.ID) bool { return true }

func ejecting(prefills, decodes int, rules ...func(*Policy)) *fleet {
	f := newFleet(prefills, decodes, nil)
	p := Policy{
		Ejection: outlier.Settings{Failures: 3, Share: 0.5, Base: time.Second, Max: 5 * time.Minute, Trials: true},
	}
	for _, rule := range rules {
		rule(&p)
	}
	f.set(p)
	return f
}

// fails lets requests fail on the replica, times in all. It plans each request until it is booked there.
func (f *fleet) fails(t *testing.T, id replica.ID, on Blame, kind outlier.Kind, times int) {
	t.Helper()
	for range times {
		f.failOnce(t, id, on, kind)
	}
}

func (f *fleet) failOnce(t *testing.T, id replica.ID, on Blame, kind outlier.Kind) {
	t.Helper()
	r := f.fresh(500)
	r.AvoidPrefill, r.AvoidDecode = allBut(f.ps, id), allBut(f.ds, id)
	b := f.plan(t, r)
	b.Release(f.now)
	b.Failed(Fault{On: on, Kind: kind}, f.now)
}

// allBut returns the other replicas of id's pool, and none of a pool without id.
func allBut(rs []replica.Replica, id replica.ID) (others []replica.ID) {
	found := false
	for i := range rs {
		if rs[i].ID == id {
			found = true
			continue
		}
		others = append(others, rs[i].ID)
	}
	if !found {
		return nil
	}
	return others
}

// fresh is a request with a new prompt that must be split.
func (f *fleet) fresh(tokens int) *Request {
	f.seq++
	r := f.request(uint32(1000+f.seq), tokens)
	r.LocalOK = false
	return r
}

// chosen books n requests that must be split, and counts them by replica.
func (f *fleet) chosen(t *testing.T, n int) map[replica.ID]int {
	t.Helper()
	got := map[replica.ID]int{}
	for range n {
		b := f.plan(t, f.fresh(500))
		b.Release(f.now)
		got[b.Prefill.ID]++
		got[b.Decode.ID]++
	}
	return got
}

func TestEjectedReplicasAreNotChosen(t *testing.T) {
	for name, tt := range map[string]struct {
		id replica.ID
		on Blame
	}{
		"prefill": {"p1", OnPrefill},
		"decode":  {"d2", OnDecode},
	} {
		t.Run(name, func(t *testing.T) {
			f := ejecting(3, 3)
			f.fails(t, tt.id, tt.on, outlier.ServerError, 3)
			if got := f.chosen(t, 300); got[tt.id] > 0 {
				t.Errorf("the ejected replica got %d of 300", got[tt.id])
			}
			d, err := f.pl.Explain(f.request(1, 500), f.now)
			if err != nil || len(d.Excluded) != 1 || !strings.HasPrefix(d.Excluded[0].Reason, "ejected as "+name) {
				t.Errorf("the explanation says %+v (%v)", d.Excluded, err)
			}
			due := f.pl.Outliers().Due(f.now.Add(time.Second), everybody)
			if len(due) != 1 || due[0].ID != tt.id {
				t.Fatalf("trials due: %+v", due)
			}
			f.pl.Outliers().Passed(due[0], f.now)
			if got := f.chosen(t, 300); got[tt.id] == 0 {
				t.Error("after its trial nobody chooses it")
			}
		})
	}
}

// A replica that is half-open takes one request at a time, then two, and so on.
func TestHalfOpenReplicasTakeOneAtATime(t *testing.T) {
	f := ejecting(1, 2)
	f.fails(t, "d1", OnDecode, outlier.ServerError, 3)
	f.pass(time.Second)
	f.pl.Outliers().Passed(f.pl.Outliers().Due(f.now, everybody)[0], f.now)
	for want := 1; want <= 4; want *= 2 {
		var open []*Booking
		var last *Booking
		there := 0
		for range 30 {
			b := f.plan(t, f.fresh(500))
			open = append(open, b)
			if b.Decode.ID == "d1" {
				there, last = there+1, b
			}
		}
		if there != want {
			t.Fatalf("%d requests at once on a half-open replica, want %d", there, want)
		}
		last.Decoding(f.now)
		for _, b := range open {
			b.Release(f.now)
		}
	}
}

// At most half of a pool is ejected. Further replicas are used as they are, the ones with the fewest
// failures first, and the decision says so.
func TestNeverMoreThanHalfIsEjected(t *testing.T) {
	f := ejecting(4, 1)
	for _, id := range []replica.ID{"p1", "p2"} {
		f.fails(t, id, OnPrefill, outlier.ServerError, 3)
	}
	f.fails(t, "p3", OnPrefill, outlier.ServerError, 2)
	if got := f.chosen(t, 200); got["p1"]+got["p2"] > 0 || got["p3"]+got["p4"] != 200 {
		t.Fatalf("chosen %v", got)
	}
	f.fails(t, "p3", OnPrefill, outlier.ServerError, 1)
	r := f.request(2, 500)
	r.LocalOK = false
	d, err := f.pl.Explain(r, f.now)
	if err != nil || !strings.Contains(d.Forced, "p") {
		t.Errorf("forced %q, %v; want the least of the failing ones named", d.Forced, err)
	}
	got := f.chosen(t, 200)
	used := 0
	for _, id := range []replica.ID{"p1", "p2", "p3"} {
		if got[id] > 0 {
			used++
		}
	}
	if used > 1 {
		t.Errorf("chosen %v: more of the ejected are used than must be", got)
	}
}

// A pair that gave a wrong text is never used, even if no other pair is left.
func TestAPairThatGaveAWrongTextIsUsedByNobody(t *testing.T) {
	f := ejecting(1, 2)
	r := f.fresh(500)
	f.pl.Outliers().WrongText(Pairing{Prefill: "p1", Decode: "d1"}, f.now)
	for _, id := range []replica.ID{"p1", "d2"} { // both are used in spite of their failures
		on := map[replica.ID]Blame{"p1": OnPrefill, "d2": OnDecode}[id]
		f.fails(t, id, on, outlier.ServerError, 4)
	}
	if got := f.chosen(t, 100); got["d2"] != 100 {
		t.Errorf("chosen %v, want d2 each time", got)
	}
	f.pl.Outliers().WrongText(Pairing{Prefill: "p1", Decode: "d2"}, f.now)
	r.LocalOK = false
	_, err := f.pl.Plan(r, f.now)
	if none, refused := errors.AsType[*NoReplica](err); !refused ||
		!strings.Contains(none.Reason, "wrong text") {
		t.Errorf("planned with %v, want it refused for the wrong text", err)
	}
	r.LocalOK = true
	b := f.plan(t, r)
	defer b.Release(f.now)
	if b.Mode != Local {
		t.Errorf("planned as %v, want a decode replica alone", b.Mode)
	}
}

// The last usable replica of a pool is used in spite of its failures, and so is the last pair.
func TestTheLastIsUsedAsItIs(t *testing.T) {
	f := ejecting(1, 1)
	f.fails(t, "p1", OnPrefill, outlier.Unusable, 5)
	f.fails(t, "d1", OnDecode, outlier.ServerError, 5)
	f.fails(t, "d1", OnPair, outlier.LoadFail, 5)
	if got := f.chosen(t, 10); got["p1"] != 10 || got["d1"] != 10 {
		t.Errorf("chosen %v", got)
	}
}

// If another replica will have room, a request waits for this room instead of using an ejected replica.
func TestRequestsWaitForRoomRatherThanForAnEjectedReplica(t *testing.T) {
	f := ejecting(1, 2)
	f.fails(t, "d1", OnDecode, outlier.ServerError, 3)
	r := f.request(4, 100_000)
	r.LocalOK = false
	for range 2 { // fills d2
		b, err := f.pl.Plan(r, f.now)
		if err != nil {
			break
		}
		if b.Decode.ID != "d2" {
			t.Fatalf("booked on %s", b.Decode.ID)
		}
		b.DecodeLease.MarkSent(f.now)
	}
	for range 5 {
		_, err := f.pl.Plan(r, f.now)
		var full *NoRoom
		if err != nil && !errors.As(err, &full) {
			t.Fatalf("%v, want patience", err)
		}
	}
}

// A request that was planned before its pair was ejected moves to another decode replica. If there is none,
// it stays, except on a pair that gave a wrong text.
func TestRebindLeavesAPairThatWasEjectedMeanwhile(t *testing.T) {
	f := ejecting(1, 2)
	r := f.request(1, 8000)
	r.LocalOK = false
	b := f.plan(t, r)
	before := b.Decode.ID
	f.pl.Outliers().WrongText(Pairing{Prefill: "p1", Decode: before}, f.now)
	moved, err := f.pl.Rebind(b, r, f.now)
	if err != nil || !moved || b.Decode.ID == before {
		t.Errorf("moved %v from %s to %s, %v; want the other one", moved, before, b.Decode.ID, err)
	}

	alone := ejecting(1, 1)
	b = alone.plan(t, r)
	for range 5 {
		b.Failed(Fault{On: OnPair, Kind: outlier.LoadFail}, alone.now)
	}
	moved, err = alone.pl.Rebind(b, r, alone.now)
	if moved || err != nil || !alone.pl.Outliers().PairOut(b.pair()) {
		t.Errorf("the last pair, ejected: moved %v, %v; want it kept", moved, err)
	}
	alone.pl.Outliers().WrongText(b.pair(), alone.now)
	_, err = alone.pl.Rebind(b, r, alone.now)
	if _, none := errors.AsType[*NoReplica](err); !none {
		t.Errorf("the last pair gave a wrong text: %v, want no replica", err)
	}
}

func TestEjectedPairsAreNotChosen(t *testing.T) {
	f := ejecting(2, 2)
	cut := func(b *Booking) bool { return b.Prefill.ID == "p1" && b.Decode.ID == "d1" }
	errs := 0
	for range 400 {
		b := f.plan(t, f.fresh(500))
		b.Release(f.now)
		if cut(b) {
			errs++
			b.Failed(Fault{On: OnPair, Kind: outlier.LoadFail}, f.now)
			continue
		}
		b.Decoding(f.now)
	}
	if errs != 2 {
		t.Errorf("%d requests went over the cut path, want 2", errs)
	}
	for _, s := range f.pl.Outliers().Status(f.now) {
		if s.Pair == nil && s.State != outlier.InUse {
			t.Errorf("%s is blamed for a path: %s", s.Replica, s.Cause)
		}
	}
	f.pass(time.Second)
	due := f.pl.Outliers().Due(f.now, everybody)
	if len(due) != 1 || !due[0].IsPair() {
		t.Fatalf("due %+v", due)
	}
	f.pl.Outliers().Passed(due[0], f.now)
	back := 0
	for range 100 {
		b := f.plan(t, f.fresh(500))
		b.Release(f.now)
		if cut(b) {
			back++
		}
	}
	if back == 0 {
		t.Error("the pair does not come back")
	}
}

// A replica that fails with every partner is at fault itself.
func TestFatesOfPairsAreKeptApart(t *testing.T) {
	for name, tt := range map[string]struct {
		bad  func(b *Booking) bool
		want replica.ID
	}{
		"prefill": {func(b *Booking) bool { return b.Prefill.ID == "p2" }, "p2"},
		"decode":  {func(b *Booking) bool { return b.Decode.ID == "d3" }, "d3"},
	} {
		t.Run(name, func(t *testing.T) {
			f := ejecting(3, 3)
			errs := 0
			for range 300 {
				b := f.plan(t, f.fresh(500))
				b.Release(f.now)
				if tt.bad(b) {
					errs++
					b.Failed(Fault{On: OnPair, Kind: outlier.LoadFail}, f.now)
					continue
				}
				b.Decoding(f.now)
			}
			out := replica.ID("")
			for _, s := range f.pl.Outliers().Status(f.now) {
				if s.Pair == nil && s.State == outlier.Ejected {
					out += s.Replica
				}
			}
			if out != tt.want || errs > 6 {
				t.Errorf("ejected %q after %d failures, want %s after at most 6", out, errs, tt.want)
			}
		})
	}
}

// A few failures are a term of the cost before they lead to ejection. The cost stays the sum of its terms.
func TestFailuresHaveAPrice(t *testing.T) {
	f := ejecting(2, 2)
	f.failOnce(t, "p1", OnPrefill, outlier.ServerError)
	got := f.chosen(t, 100)
	if got["p1"] > 0 {
		t.Errorf("of two replicas alike the one that has just failed was chosen %d times of 100", got["p1"])
	}
	d, err := f.pl.Explain(f.request(1, 500), f.now)
	if err != nil {
		t.Fatal(err)
	}
	priced := false
	for _, p := range d.Plans {
		if math.Abs(p.Total-p.Terms.Total()) > 1e-9 {
			t.Errorf("total %v of terms %+v", p.Total, p.Terms)
		}
		priced = priced || p.Terms.Failures > 0
	}
	if !priced {
		t.Errorf("no plan has a price for failures: %+v", d.Plans)
	}
	f.pass(10 * time.Minute)
	if got := f.chosen(t, 100); got["p1"] == 0 {
		t.Error("a failure of ten minutes ago still decides")
	}
}

// A rule does not choose an ejected replica.
func TestRulesChooseNobodyEjected(t *testing.T) {
	f := ejecting(3, 3, func(p *Policy) { p.Rule = ruleOf(&take{name: "p1"}) })
	plan := func(seed uint32) *Booking {
		r := f.request(seed, 500)
		r.LocalOK = false
		b := f.plan(t, r)
		b.Release(f.now)
		return b
	}
	failed := 0
	for seed := range uint32(40) {
		if b := plan(seed); b.Prefill.ID == "p1" {
			failed++
			b.Failed(Fault{On: OnPrefill, Kind: outlier.ServerError}, f.now)
		}
	}
	if failed == 0 {
		t.Fatal("the rule never chose p1")
	}
	for seed := range uint32(40) {
		if b := plan(seed + 100); b.Prefill.ID == "p1" {
			t.Fatal("booked on p1, which is ejected")
		}
	}
}
