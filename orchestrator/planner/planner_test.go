package planner

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/scoring"
)

var update = flag.Bool("update", false, "write the golden files")

// TestWorkedExample is the decision that docs explain: the two racks, a prefix on p1 and on d2, some load.
// See testdata/worked.json.
func TestWorkedExample(t *testing.T) {
	f := newFleet(2, 3, func(r *replica.Replica) {
		if r.ID == "p2" || r.ID == "d3" {
			r.Place.Rack = "r2"
		}
	})
	f.set(Policy{Links: [replica.Links]float64{100e9, 40e9, 4e9, 3e9}})
	f.store(t, f.prefill, "p1", 1, 640)
	f.store(t, f.decode, "d2", 1, 500)
	f.says(f.prefill, "p1", 1, 0, 0.10)
	f.says(f.decode, "d1", 30, 0, 0.60)
	f.says(f.decode, "d2", 12, 0, 0.20)
	f.says(f.decode, "d3", 2, 0, 0.05)
	f.pass(200 * time.Millisecond)
	d, err := f.pl.Explain(f.request(1, 12_000), f.now)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join("testdata", "worked.json")
	if *update {
		if err := os.WriteFile(name, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if string(got)+"\n" != string(want) {
		t.Errorf("the decision differs from %s (go test -update writes it):\n%s", name, got)
	}
}

// A prefill also yields the first token, but after a transfer a decode step makes it. Without this rule, two
// streams that stop for a moment are enough to split a prompt that is sooner computed in place.
func TestASplitTakesAStepMore(t *testing.T) {
	f := newFleet(1, 1, nil)
	f.says(f.decode, "d1", 2, 0, 0.01)
	for i := range 20 {
		d, err := f.pl.Explain(f.request(uint32(i), 200), f.now)
		if err != nil {
			t.Fatal(err)
		}
		if d.Mode != Local {
			t.Fatalf("the plan is %s, because of %s: %s", d.Mode, d.Why, d.Reason)
		}
		for _, plan := range d.Plans {
			moving := 2 + 208*131072/40e9*1e3 // of 13 blocks within a rack
			if want := moving + plan.OnDecode.Step; plan.Mode == Split && math.Abs(plan.Terms.Transfer-want) > 0.01 {
				t.Errorf("the transfer is priced at %.2f ms, want %.2f: 2 ms, the blocks, and a step",
					plan.Terms.Transfer, want)
			}
		}
		// A new request waits for half of a step, and the step with the prompt also decodes the two streams.
		s := estimate.DefaultSpeed()
		half, decoded := s.D0/2, 2*s.D1+s.D2*float64(int(0.01*20_000*16))
		half += decoded / 2
		if took := 1e3 * (s.Prefill(200, 0) + half + decoded); math.Abs(d.TTFT-took) > 0.01 {
			t.Errorf("the first token is predicted after %.2f ms, want the %.2f ms of the prompt", d.TTFT, took)
		}
	}
}

func TestReasonIsASentence(t *testing.T) {
	f := newFleet(1, 1, nil)
	f.store(t, f.prefill, "p1", 1, 64)
	r := f.request(1, 1500)
	r.LocalOK = false
	b := f.plan(t, r)
	if got, want := b.Decision.Reason, "1,024 of 1,500 tokens cached on p1, idle; d1 has 19,600 free "+
		"blocks"; got != want {
		t.Errorf("reason %q, want %q", got, want)
	}
	if b.Decision.Why != WhyOnly || b.MatchedPrefill != 1024 || b.Decision.Available != 1024 {
		t.Errorf("why %q, matched %d, available %d", b.Decision.Why, b.MatchedPrefill, b.Decision.Available)
	}
}

// The reason says that a plan was drawn, even if the plan is ahead of all plans of the other kind.
func TestReasonSaysThatAPlanWasDrawn(t *testing.T) {
	f := newFleet(1, 2, nil)
	d := f.plan(t, f.request(1, 200)).Decision
	if d.Mode != Local || d.Why == WhyTie || d.Ties != 2 {
		t.Fatalf("the plan is %s, because of %s, with %d as good: this is no test", d.Mode, d.Why, d.Ties)
	}
	if !strings.HasSuffix(d.Reason, "; drawn among 2 plans as good") {
		t.Errorf("reason %q does not say that it was drawn", d.Reason)
	}
}

// A replica that makes no pair is no alternative: the reason compares with possible plans only.
func TestWhyComparesPossiblePlansOnly(t *testing.T) {
	f := newFleet(2, 2, func(r *replica.Replica) {
		if r.ID == "p2" {
			r.Facts.Version = "0.31.0"
		}
	})
	f.says(f.prefill, "p2", 9, 9, 0.9) // were it possible, it would be far worse
	r := f.request(1, 4000)
	r.LocalOK = false
	if b := f.plan(t, r); b.Decision.Why != WhyTie || b.Decision.Ties != 2 {
		t.Errorf("of two equal plans one was chosen by %q", b.Decision.Why)
	}
}

func TestChoice(t *testing.T) {
	type want struct {
		mode            Mode
		prefill, decode string // any listed letter is right; "" for any
	}
	for _, tt := range []struct {
		name string
		edit func(t *testing.T, f *fleet, r *Request)
		want want
	}{
		{"the deepest match", func(t *testing.T, f *fleet, r *Request) {
			f.store(t, f.prefill, "p2", 1, 300)
			f.store(t, f.prefill, "p3", 1, 100)
			r.LocalOK = false
		}, want{Split, "p2", ""}},
		{"less work, where the queue is longer than what the match saves", func(t *testing.T, f *fleet,
			r *Request,
		) {
			f.store(t, f.prefill, "p2", 1, 100)
			f.says(f.prefill, "p2", 1, 30, 0.1)
			f.says(f.prefill, "p3", 1, 30, 0.1)
			r.LocalOK = false
		}, want{Split, "p1", ""}},
		{"the deep match is worth nothing when no compatible decode replica has room", func(t *testing.T, f *fleet,
			r *Request,
		) {
			f.store(t, f.prefill, "p2", 1, 400)
			f.ps[1].Facts.Version, f.ds[1].Facts.Version = "0.31.0", "0.31.0"
			f.prefill.SetMembers(f.ps, f.now)
			f.decode.SetMembers(f.ds, f.now)
			f.says(f.decode, "d2", 3, 0, 0.99)
			r.LocalOK = false
		}, want{Split, "p1p3", "d1d3"}},
		{"and decides when it has", func(t *testing.T, f *fleet, r *Request) {
			f.store(t, f.prefill, "p2", 1, 400)
			f.ps[1].Facts.Version, f.ds[1].Facts.Version = "0.31.0", "0.31.0"
			f.prefill.SetMembers(f.ps, f.now)
			f.decode.SetMembers(f.ds, f.now)
			r.LocalOK = false
		}, want{Split, "p2", "d2"}},
		{"the near decode replica, where the link is slow", func(t *testing.T, f *fleet, r *Request) {
			f.ps[0].Place.Rack, f.ds[2].Place.Rack = "r9", "r9"
			f.ps[0].Place.Zone, f.ds[2].Place.Zone = "z9", "z9"
			f.prefill.SetMembers(f.ps[:1], f.now)
			f.decode.SetMembers(f.ds, f.now)
			r.LocalOK = false
		}, want{Split, "p1", "d3"}},
		{"the smaller batch", func(t *testing.T, f *fleet, r *Request) {
			f.says(f.decode, "d1", 200, 0, 0.5)
			f.says(f.decode, "d2", 2, 0, 0.5)
			f.says(f.decode, "d3", 200, 0, 0.5)
			r.LocalOK = false
		}, want{Split, "", "d2"}},
		{"the blocks that are there need no transfer", func(t *testing.T, f *fleet, r *Request) {
			f.store(t, f.decode, "d2", 1, 400)
			r.LocalOK = false
		}, want{Split, "", "d2"}},
		{"local, where decode holds the conversation", func(t *testing.T, f *fleet, r *Request) {
			f.store(t, f.decode, "d2", 1, 499)
		}, want{Local, "", "d2"}},
		{"not local, where it would stop a large batch", func(t *testing.T, f *fleet, r *Request) {
			for _, d := range f.ds {
				f.says(f.decode, d.ID, 100, 0, 0.3)
			}
		}, want{Split, "", ""}},
		{"local, because there is no prefill replica", func(t *testing.T, f *fleet, r *Request) {
			f.prefill.SetMembers(nil, f.now)
		}, want{Local, "", ""}},
		{"avoided replicas are not taken", func(t *testing.T, f *fleet, r *Request) {
			f.store(t, f.prefill, "p2", 1, 400)
			f.store(t, f.decode, "d2", 1, 400)
			r.AvoidPrefill, r.AvoidDecode = []replica.ID{"p2", "p1"}, []replica.ID{"d2", "d3"}
			r.LocalOK = false
		}, want{Split, "p3", "d1"}},
		{"avoided pairs are not taken", func(t *testing.T, f *fleet, r *Request) {
			r.AvoidPairs = []Pairing{{Prefill: "p1", Decode: "d1"}, {Prefill: "p1", Decode: "d2"}}
			r.AvoidPrefill = []replica.ID{"p2", "p3"}
			r.LocalOK = false
		}, want{Split, "p1", "d3"}},
		{"a silent replica is not idle", func(t *testing.T, f *fleet, r *Request) {
			f.ps = append(f.ps, replicas("p", replica.Prefill, 4, nil)[3])
			f.prefill.SetMembers(f.ps, f.now)
			for i, n := range []int{2, 20, 20} {
				f.says(f.prefill, f.ps[i].ID, n, 0, 0.1)
			}
			r.LocalOK = false
		}, want{Split, "p1", ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFleet(3, 3, nil)
			r := f.request(1, 8000)
			tt.edit(t, f, r)
			for range 20 { // ties must not hide a wrong choice
				b := f.plan(t, r)
				if b.Mode != tt.want.mode ||
					!strings.Contains(tt.want.prefill, string(b.Prefill.ID)) && tt.want.prefill != "" ||
					!strings.Contains(tt.want.decode, string(b.Decode.ID)) && tt.want.decode != "" {
					t.Fatalf("%v on %q and %q, want %+v; %s", b.Mode, b.Prefill.ID, b.Decode.ID, tt.want, b.Decision.Reason)
				}
				if (b.Mode == Local) != (b.PrefillLease == nil) || (b.Mode == Local) != (b.Prefill.ID == "") {
					t.Fatalf("%v with prefill %q and lease %v", b.Mode, b.Prefill.ID, b.PrefillLease)
				}
				b.Release(f.now)
			}
		})
	}
}

func TestModesAllowedAreHonoured(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet(2, 2, nil)
		for _, d := range f.ds {
			f.says(f.decode, d.ID, rapid.IntRange(0, 100).Draw(t, "running"), 0,
				rapid.Float64Range(0, 0.9).Draw(t, "usage"))
		}
		r := f.request(1, rapid.IntRange(1, 20_000).Draw(t, "tokens"))
		r.SplitOK = rapid.Bool().Draw(t, "split")
		r.LocalOK = !r.SplitOK || rapid.Bool().Draw(t, "local")
		if rapid.Bool().Draw(t, "raw") {
			f.set(Policy{
				Weights: scoring.Weights{Units: scoring.InRaw, Alpha: scoring.Alpha{Value: 1}, Beta: 1, Gamma: 10},
			})
		}
		b, err := f.pl.Plan(r, f.now)
		if err != nil {
			t.Fatal(err)
		}
		if b.Mode == Split && !r.SplitOK || b.Mode == Local && !r.LocalOK {
			t.Fatalf("%v although split %v, local %v", b.Mode, r.SplitOK, r.LocalOK)
		}
	})
}

func TestErrors(t *testing.T) {
	for _, tt := range []struct {
		name string
		edit func(f *fleet, r *Request)
		room string // text in NoRoom
		pool string // of NoReplica
		why  string // text in NoReplica
		big  bool
	}{
		{"decode is full", func(f *fleet, r *Request) {
			f.set(Policy{ExpectedOutput: longAnswers})
			f.says(f.decode, "d1", 9, 0, 0.99)
			f.says(f.decode, "d2", 9, 0, 1)
		}, "d1 has room for", "", "", false},
		{
			"nobody serves the model", func(f *fleet, r *Request) { r.Model = "x" }, "", "decode",
			"d1: does not serve the model", false,
		},
		{"prefill is ill", func(f *fleet, r *Request) {
			r.LocalOK = false
			f.prefill.SetHealthy("p1", false, "connection refused")
			f.prefill.SetHealthy("p2", false, "connection refused")
		}, "", "prefill", "p1: connection refused; p2: connection refused", false},
		{
			"no decode replica at all", func(f *fleet, r *Request) { f.decode.SetMembers(nil, f.now) }, "", "decode",
			"none has joined, see /readyz", false,
		},
		{
			"the prompt is too long", func(f *fleet, r *Request) { r.Tokens = 200_000 }, "", "decode",
			"at most 159999 tokens, not 200000", true,
		},
		{"the only one that takes it is ill: that may pass", func(f *fleet, r *Request) {
			r.Tokens = 155_000
			f.ds[0].Facts.MaxModelLen = 100_000
			f.decode.SetMembers(f.ds, f.now)
			f.decode.SetHealthy("d2", false, "no answer")
		}, "", "decode", "d2: no answer", false},
		{"too long for prefill", func(f *fleet, r *Request) {
			r.LocalOK = false
			for i := range f.ps {
				f.ps[i].Facts.MaxModelLen = 5000
			}
			f.prefill.SetMembers(f.ps, f.now)
		}, "", "prefill", "at most 4999 tokens, not 5000", true},
		{"no pair fits together", func(f *fleet, r *Request) {
			r.LocalOK = false
			for i := range f.ds {
				f.ds[i].Facts.Version = "0.20.0"
			}
			f.decode.SetMembers(f.ds, f.now)
		}, "", "pair", "p1 with d1: different versions: 0.32.0 at p1 and 0.20.0 at d1", false},
		{"no two are of one revision", func(f *fleet, r *Request) {
			r.LocalOK = false
			for i := range f.ps {
				f.ps[i].Revision = "old"
			}
			for i := range f.ds {
				f.ds[i].Revision = "new"
			}
			f.prefill.SetMembers(f.ps, f.now)
			f.decode.SetMembers(f.ds, f.now)
		}, "", "pair", "p1 with d1: different revisions: old at p1 and new at d1", false},
		{"no connector is that of the other side", func(f *fleet, r *Request) {
			r.LocalOK = false
			for i := range f.ds {
				f.ps[i].Facts.Connector, f.ds[i].Facts.Connector = "nixl", "other"
			}
			f.prefill.SetMembers(f.ps, f.now)
			f.decode.SetMembers(f.ds, f.now)
		}, "", "pair", "p1 with d1: different connectors: nixl at p1 and other at d1", false},
		{"the only fitting decode replica is full", func(f *fleet, r *Request) {
			f.set(Policy{ExpectedOutput: longAnswers})
			r.LocalOK = false
			f.ds[0].Facts.CacheDType = "fp8"
			f.decode.SetMembers(f.ds, f.now)
			f.says(f.decode, "d2", 9, 0, 0.99)
		}, "d2 has room for", "", "", false},
		{"a full decode replica that fits nobody is no reason to wait", func(f *fleet, r *Request) {
			r.LocalOK = false
			for i := range f.ds {
				f.ds[i].Facts.BlockSize, f.ds[i].Facts.Blocks = 32, 10_000
			}
			f.decode.SetMembers(f.ds, f.now)
			f.says(f.decode, "d2", 9, 0, 0.99)
		}, "", "pair", "different block sizes: 16 at p1 and 32 at d1", false},
		{
			"all is avoided", func(f *fleet, r *Request) { r.AvoidDecode = []replica.ID{"d1", "d2"} }, "", "decode",
			"failed this request before", false,
		},
		{
			"nothing is allowed", func(f *fleet, r *Request) { r.SplitOK, r.LocalOK = false, false }, "", "pair",
			"neither", false,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFleet(2, 2, nil)
			r := f.request(1, 5000)
			tt.edit(f, r)
			_, err := f.pl.Plan(r, f.now)
			_, explained := f.pl.Explain(r, f.now)
			if err == nil || explained == nil || err.Error() != explained.Error() {
				t.Fatalf("Plan says %v, Explain %v", err, explained)
			}
			full, isFull := errors.AsType[*NoRoom](err)
			none, isNone := errors.AsType[*NoReplica](err)
			switch {
			case tt.room != "" &&
				(!isFull || !strings.Contains(full.Reason, tt.room) || full.Retry < decode.MinRetry ||
					full.Retry > time.Minute):
				t.Errorf("%#v, want NoRoom with %q", err, tt.room)
			case isFull && !(full.Part > 0 && full.Every > 0):
				t.Errorf("NoRoom does not say what part of a replica is asked for, and how often there is: %+v", full)
			case tt.pool != "" &&
				(!isNone || none.Pool != tt.pool || !strings.Contains(none.Reason, tt.why) || none.TooLarge != tt.big):
				t.Errorf("%#v, want NoReplica in %s with %q, too large %v", err, tt.pool, tt.why, tt.big)
			}
			for _, s := range f.decode.Status(f.now) {
				if s.Leases != 0 {
					t.Errorf("%s holds %d leases after a refusal", s.ID, s.Leases)
				}
			}
		})
	}
}

func TestExplainBooksNothing(t *testing.T) {
	f := newFleet(2, 2, nil)
	f.prefill.SetHealthy("p2", false, "no answer")
	r := f.request(1, 5000)
	first, err := f.pl.Explain(r, f.now)
	if err != nil {
		t.Fatal(err)
	}
	if len(first.Excluded) != 1 ||
		first.Excluded[0] != (Exclusion{Pool: "prefill", Replica: "p2", Reason: "no answer"}) {
		t.Errorf("excluded %+v", first.Excluded)
	}
	for _, s := range f.prefill.Status(f.now) {
		if s.Requests != 0 || s.Rho != 0 {
			t.Errorf("prefill %+v", s)
		}
	}
	for _, s := range f.decode.Status(f.now) {
		if s.Leases != 0 {
			t.Errorf("decode %+v", s)
		}
	}
	b := f.plan(t, r)
	if math.Abs(b.Decision.Plans[0].Total-first.Plans[0].Total) > 1 {
		t.Errorf("explained at %g ms, planned at %g ms", first.Plans[0].Total, b.Decision.Plans[0].Total)
	}
}

// TestScoresDoNotDependOnOrder shuffles the members: every plan must cost the same as before.
func TestScoresDoNotDependOnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		build := func(order []int) map[[2]replica.ID]float64 {
			f := newFleet(4, 4, nil)
			ps, ds := make([]replica.Replica, 4), make([]replica.Replica, 4)
			for i, at := range order {
				ps[at], ds[at] = f.ps[i], f.ds[i]
			}
			f.prefill.SetMembers(ps, f.now)
			f.decode.SetMembers(ds, f.now)
			for i := range f.ps {
				f.says(f.prefill, f.ps[i].ID, i, i*i, float64(i)/5)
				f.says(f.decode, f.ds[i].ID, i*3, 0, float64(3-i)/5)
			}
			d, err := f.pl.Explain(f.request(1, 4000), f.now)
			if err != nil {
				t.Fatal(err)
			}
			costs := map[[2]replica.ID]float64{}
			for _, p := range d.Plans[1:] { // the first may be any tied plan
				costs[[2]replica.ID{p.Prefill, p.Decode}] = p.Total
			}
			first := d.Plans[0]
			costs[[2]replica.ID{first.Prefill, first.Decode}] = first.Total
			return costs
		}
		a := build([]int{0, 1, 2, 3})
		b := build(rapid.Permutation([]int{0, 1, 2, 3}).Draw(t, "order"))
		for plan, cost := range a {
			if other, ok := b[plan]; ok && math.Abs(other-cost) > 1e-9 {
				t.Fatalf("%v costs %g, in another order %g", plan, cost, other)
			}
		}
	})
}

func TestTiesAreSpread(t *testing.T) {
	f := newFleet(4, 4, nil)
	r := f.request(1, 500)
	r.LocalOK = false
	r.PrefillKeys, r.DecodeKeys = nil, nil
	count := map[Pairing]int{}
	for range 1600 {
		b := f.plan(t, r)
		count[Pairing{Prefill: b.Prefill.ID, Decode: b.Decode.ID}]++
		b.Release(f.now)
		f.pass(time.Minute) // lets the work that was booked fade
		for i := range f.ps {
			f.says(f.prefill, f.ps[i].ID, 0, 0, 0)
			f.says(f.decode, f.ds[i].ID, 0, 0, 0)
		}
	}
	if len(count) != 16 {
		t.Errorf("%d of 16 equal pairs were chosen", len(count))
	}
	for pair, n := range count {
		if n > 200 {
			t.Errorf("%v was chosen %d times of 1600", pair, n)
		}
	}
}

func TestBurstOfOnePrefixFollowsTheFirst(t *testing.T) {
	f := newFleet(4, 2, nil)
	r := f.request(1, 16_000)
	r.LocalOK = false
	first := f.plan(t, r)
	f.pass(200 * time.Millisecond)
	second := f.plan(t, r)
	if second.MatchedPrefill != 15_984 || second.Prefill.ID != first.Prefill.ID {
		t.Errorf("while it runs: %d tokens matched on %s, want 15,984 on %s",
			second.MatchedPrefill, second.Prefill.ID, first.Prefill.ID)
	}
	f.pass(time.Minute)
	f.prefill.Expire(f.now)
	if d, err := f.pl.Explain(r, f.now); err != nil || d.Available != 0 {
		t.Errorf("a minute later without an event: %+v, %v, want nothing matched", d, err)
	}
}

// longAnswers is how many tokens answers have on replicas that are full for long.
const longAnswers = 20_000

func TestRebind(t *testing.T) {
	isD1 := func(id replica.ID) bool { return id == "d1" }
	for _, tt := range []struct {
		name  string
		edit  func(f *fleet, b *Booking)
		moved bool
		to    replica.ID
		err   string
	}{
		{"all is well", func(*fleet, *Booking) {}, false, "d1", ""},
		{"it died", func(f *fleet, b *Booking) { f.decode.SetHealthy("d1", false, "gone") }, true, "d3", ""},
		{"it left", func(f *fleet, b *Booking) { f.decode.SetMembers(f.ds[1:], f.now) }, true, "d3", ""},
		{"it left, and another engine has its name", func(f *fleet, b *Booking) {
			moved := f.ds[0]
			moved.URL = "http://moved.internal:8000"
			f.decode.SetMembers([]replica.Replica{moved}, f.now)
			f.says(f.decode, "d1", 0, 0, 0)
		}, true, "d1", ""},
		{"it is drained", func(f *fleet, b *Booking) { f.drained(isD1) }, true, "d3", ""},
		{"it is drained and no other replica has room", func(f *fleet, b *Booking) {
			f.set(Policy{ExpectedOutput: longAnswers})
			f.says(f.decode, "d3", 5, 0, 1)
			f.drained(isD1)
		}, false, "d1", ""},
		{"it lost its room", func(f *fleet, b *Booking) {
			f.pass(time.Second)
			f.says(f.decode, "d1", 5, 0, 0.995)
		}, true, "d3", ""},
		{
			"it prefills a long prompt now", func(f *fleet, b *Booking) { f.prefills(t, "d1", 60_000) }, true, "d3",
			"",
		},
		{"it prefills a short one", func(f *fleet, b *Booking) { f.prefills(t, "d1", 100) }, false, "d1", ""},
		{"it prefills a long prompt, and the other replica a longer one", func(f *fleet, b *Booking) {
			f.prefills(t, "d1", 30_000)
			f.prefills(t, "d3", 60_000)
		}, false, "d1", ""},
		{"it lost its room, but the blocks take longer to reach the other replica", func(f *fleet,
			b *Booking,
		) {
			f.set(Policy{Links: [replica.Links]float64{4e9, 4e9, 4e9, 1e6}})
			f.ds[2].Place = replica.Place{Host: "far"}
			f.decode.SetMembers(f.ds, f.now)
			f.pass(time.Second)
			f.says(f.decode, "d1", 5, 0, 0.995)
		}, false, "d1", ""},
		{"no replica has room: the request stays", func(f *fleet, b *Booking) {
			f.set(Policy{ExpectedOutput: longAnswers})
			for _, d := range f.ds {
				f.says(f.decode, d.ID, 5, 0, 1)
			}
		}, false, "d1", ""},
		{"it died and nobody has room", func(f *fleet, b *Booking) {
			f.set(Policy{ExpectedOutput: longAnswers})
			f.says(f.decode, "d3", 5, 0, 1)
			f.decode.SetHealthy("d1", false, "gone")
		}, false, "d1", "no room"},
		{"it died and nobody is left", func(f *fleet, b *Booking) {
			f.decode.SetMembers(f.ds[1:2], f.now)
		}, false, "d1", "no other decode replica can take the KV blocks of p1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFleet(1, 3, func(r *replica.Replica) {
				if r.ID == "d2" {
					r.Facts.Version = "0.31.0" // never compatible
				}
				r.Place = replica.Place{Rack: "r"}
			})
			r := f.request(1, 6000)
			r.LocalOK = false
			r.AvoidDecode = []replica.ID{"d3"}
			b := f.plan(t, r)
			r.AvoidDecode = nil
			tt.edit(f, b)
			moved, err := f.pl.Rebind(b, r, f.now)
			if moved != tt.moved || b.Decode.ID != tt.to || (err == nil) != (tt.err == "") ||
				err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Fatalf("moved %v to %s, %v, want %v, %s, %q", moved, b.Decode.ID, err, tt.moved, tt.to, tt.err)
			}
			if moved && (b.Decision.Moved == nil || b.Decision.Moved.From != "d1" || b.Decision.Decode != tt.to) {
				t.Errorf("the move is not in the decision: %+v", b.Decision.Moved)
			}
			if err == nil {
				for _, s := range f.decode.Status(f.now) {
					want := f.locals[s.ID]
					if s.ID == tt.to {
						want++
					}
					if s.Leases != want || s.Sequences != want {
						t.Errorf("%s: %d leases, %d hard, want %d", s.ID, s.Leases, s.Sequences, want)
					}
				}
			}
			b.Release(f.now)
			for _, s := range f.decode.Status(f.now) {
				if s.Leases != f.locals[s.ID] || f.locals[s.ID] == 0 && (s.Promised != 0 || s.Reserved != 0) {
					t.Errorf("after release: %+v", s)
				}
			}
		})
	}
}

// Raw units choose among plans by a formula that predicts no times. A request moves by predicted times in raw
// units, too.
func TestRebindInRawUnits(t *testing.T) {
	for _, tt := range []struct {
		name  string
		edit  func(f *fleet)
		moved bool
	}{
		{"all is well", func(*fleet) {}, false},
		{"it is drained", func(f *fleet) { f.drained(func(id replica.ID) bool { return id == "d1" }) }, true},
		{"it lost its room", func(f *fleet) {
			f.pass(time.Second)
			f.says(f.decode, "d1", 5, 0, 0.995)
		}, true},
		{"it prefills a long prompt now", func(f *fleet) { f.prefills(t, "d1", 60_000) }, true},
		{"it prefills a long prompt, and the other replica a longer one", func(f *fleet) {
			f.prefills(t, "d1", 30_000)
			f.prefills(t, "d2", 60_000)
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFleet(1, 2, nil)
			raw := scoring.Weights{Units: scoring.InRaw, Alpha: scoring.Alpha{Value: 1}, Beta: 1, Gamma: 10}
			f.set(Policy{Weights: raw})
			r := f.request(1, 6000)
			r.LocalOK = false
			r.AvoidDecode = []replica.ID{"d2"}
			b := f.plan(t, r)
			r.AvoidDecode = nil
			tt.edit(f)
			if moved, err := f.pl.Rebind(b, r, f.now); moved != tt.moved || err != nil {
				t.Errorf("moved %v to %s, %v, want %v", moved, b.Decode.ID, err, tt.moved)
			}
			b.Release(f.now)
		})
	}
}

// A request that moves is priced like a new request. Its prefill replica sends one prompt after the other,
// so that earlier transfers to the other decode replica cost nothing, and the batch of the decode replica
// decides.
func TestRebindWaitsForItsSender(t *testing.T) {
	for _, sending := range []bool{false, true} {
		f := newFleet(2, 4, nil)
		f.set(Policy{Links: [replica.Links]float64{1e8, 1e8, 1e8, 1e8}})
		f.says(f.decode, "d3", 1000, 0, 0.1)
		book := func(p, d replica.ID, tokens int) (*Booking, *Request) {
			r := f.fresh(tokens)
			r.AvoidPrefill, r.AvoidDecode = allBut(f.ps, p), allBut(f.ds, d)
			return f.plan(t, r), r
		}
		book("p2", "d2", 4000)
		if sending {
			book("p1", "d4", 4000)
		}
		b, r := book("p1", "d1", 1000)
		f.pass(time.Second) // every token is computed
		f.decode.SetHealthy("d1", false, "gone")
		r.AvoidDecode = []replica.ID{"d4"}
		want := replica.ID("d3") // to d2 comes another prompt first
		if sending {
			want = "d2" // that is there before p1 begins to send
		}
		if moved, err := f.pl.Rebind(b, r, f.now); !moved || err != nil || b.Decode.ID != want {
			t.Errorf("p1 sending %v: moved %v to %s, %v; want %s", sending, moved, b.Decode.ID, err, want)
		}
	}
}

func TestQueuedRequestsBookSoftly(t *testing.T) {
	f := newFleet(1, 1, nil)
	r := f.request(1, 30_000)
	r.LocalOK = false
	r.PrefillKeys = nil
	r.DecodeKeys = nil
	f.plan(t, r)
	f.plan(t, r) // waits for the first in p1's queue
	s := f.decode.Status(f.now)[0]
	if s.Sequences != 1 || s.Leases != 2 || s.Reserved < 1875 {
		t.Fatalf("%d leases, %d hard, %d blocks soft, want 2, 1 and one prompt", s.Leases, s.Sequences, s.Reserved)
	}
	f.pass(time.Minute)
	if s := f.decode.Status(f.now)[0]; s.Sequences != 2 || s.Reserved != 0 {
		t.Errorf("when its prefill should run: %d hard, %d blocks soft, want 2 and 0", s.Sequences, s.Reserved)
	}
}

func TestLinksAreLearned(t *testing.T) {
	f := newFleet(1, 2, nil)
	r := f.request(1, 16_000)
	r.LocalOK = false
	r.PrefillKeys = nil
	r.DecodeKeys = nil
	for range 60 { // d1 is ten times slower to reach than its class
		r.AvoidDecode = []replica.ID{"d2"}
		b := f.plan(t, r)
		b.PrefillLease.Done(0, time.Second, f.now)
		if _, err := f.pl.Rebind(b, r, f.now); err != nil {
			t.Fatal(err)
		}
		f.pass(time.Duration(16_000 * (128 << 10) / 4e9 * 1e9))
		f.pl.FirstToken(b, f.now)
		f.pl.FirstToken(b, f.now)
		b.Release(f.now)
		f.pass(time.Second)
		f.says(f.decode, "d1", 0, 0, 0)
		f.says(f.decode, "d2", 0, 0, 0)
		f.says(f.prefill, "p1", 0, 0, 0)
	}
	d, err := f.pl.Explain(r, f.now)
	if err != nil {
		t.Fatal(err)
	}
	if got := d.Plans[0].Terms.Transfer; math.Abs(got-524) > 80 {
		t.Errorf("transfer to d1 is put at %g ms, want about 524", got)
	}
	r.AvoidDecode = nil
	if b := f.plan(t, r); b.Decode.ID != "d2" || b.Decision.Why != WhyLink {
		t.Errorf("chose %s by %s, want d2 by its link", b.Decode.ID, b.Decision.Why)
	}
}

func TestFinishTeaches(t *testing.T) {
	f := newFleet(1, 1, nil)
	r := f.request(1, 1000)
	r.MaxTokens, r.LocalOK = 0, false
	for range 400 {
		b := f.plan(t, r)
		b.PrefillLease.Done(0, 500*time.Millisecond, f.now)
		if _, err := f.pl.Rebind(b, r, f.now); err != nil {
			t.Fatal(err)
		}
		f.pass(time.Second)
		b.Finish(30, 600*time.Millisecond, 1400*time.Millisecond, f.now)
		b.Finish(30_000, time.Second, time.Hour, f.now)
		f.says(f.decode, "d1", 0, 0, 0)
		f.says(f.prefill, "p1", 0, 0, 0)
	}
	d := f.decode.Status(f.now)[0]
	if d.Output < 28 || d.Output > 40 || d.Leases != 0 || d.Samples != 400 {
		t.Errorf("decode learned %d tokens from %d samples, holds %d leases", d.Output, d.Samples, d.Leases)
	}
	if p := f.prefill.Status(f.now)[0]; p.Requests != 0 || math.Abs(p.Speed.Prefill(1000, 0)-0.5) > 0.1 {
		t.Errorf("prefill learned %g s for 1,000 tokens, holds %d requests", p.Speed.Prefill(1000, 0), p.Requests)
	}
}

// The record shows the busy share of a replica that is idle now.
func TestTheRecordTellsHowBusyAnIdleReplicaWas(t *testing.T) {
	f := newFleet(1, 1, nil)
	r := f.fresh(16_000)
	r.LocalOK = false
	b := f.plan(t, r)
	b.PrefillLease.Done(0, time.Second, f.now)
	b.Release(f.now)
	f.pass(20 * time.Second)
	want := f.prefill.Status(f.now)[0].Rho
	b = f.plan(t, f.fresh(100))
	defer b.Release(f.now)
	if got := b.Decision.Plans[0].OnPrefill; want <= 0 || got == nil || got.Rho != want {
		t.Errorf("on the prefill replica %+v, want it %g busy", got, want)
	}
}

func TestDecisionIsAlwaysJSON(t *testing.T) {
	f := newFleet(1, 1, func(r *replica.Replica) { r.Facts = replica.Facts{Models: []string{"m"}} })
	f.prefill.SetMembers(append(f.ps, replicas("q", replica.Prefill, 1, nil)...), f.now)
	r := &Request{Model: "m", Tokens: 50, SplitOK: true, LocalOK: true}
	for _, units := range []scoring.Units{scoring.InSeconds, scoring.InRaw} {
		f.set(Policy{Weights: scoring.Weights{Units: units, Alpha: scoring.Alpha{Auto: true}, Beta: 1, Gamma: 1}})
		b := f.plan(t, r)
		raw, err := json.Marshal(b.Decision)
		if err != nil {
			t.Fatalf("%v: %v", units, err)
		}
		if !strings.Contains(string(raw), `"capacity of d1"`) || !strings.Contains(string(raw), `"prefix"`) {
			t.Errorf("%v: unknown things are not named: %s", units, raw)
		}
		b.Release(f.now)
	}
}

// TestConcurrentUse lets many requests live at once while reports, events and members change. It is for the
// race detector, and for the ledgers at the end.
func TestConcurrentUse(t *testing.T) {
	f := newFleet(3, 3, nil)
	now := f.now
	var requests, noise sync.WaitGroup
	stop := make(chan struct{})
	noise.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			l := replica.Load{
				At: now.Add(time.Duration(i) * time.Millisecond), Source: replica.Metrics, Running: i % 5, Waiting: i % 3,
				Usage: float64(i%10) / 10,
			}
			f.prefill.Observe("p1", l, l.At)
			f.decode.Observe("d1", l, l.At)
			f.decode.SetHealthy("d2", i%2 == 0, "now and then")
			f.decode.SetMembers(f.ds[:2+i%2], l.At)
			f.prefill.Expire(now)
			f.decode.Status(l.At)
		}
	})
	for w := range 4 {
		requests.Go(func() {
			for i := range 150 {
				r := f.request(uint32(w), 100+i*20)
				b, err := f.pl.Plan(r, now)
				if err != nil {
					continue
				}
				if i%3 > 0 {
					b.PrefillLease.Done(-1, time.Millisecond, now)
					f.pl.Rebind(b, r, now)
				}
				if i%3 > 1 {
					f.pl.FirstToken(b, now)
					b.Finish(20, time.Millisecond, time.Second, now)
				}
				b.Release(now)
			}
		})
	}
	requests.Wait()
	close(stop)
	noise.Wait()
	for _, s := range f.prefill.Status(now) {
		if s.Requests != 0 || s.Tokens != 0 {
			t.Errorf("prefill %+v", s)
		}
	}
	for _, s := range f.decode.Status(now) {
		if s.Leases != 0 || s.Promised != 0 || s.Reserved != 0 || s.Growth != 0 {
			t.Errorf("decode %+v", s)
		}
	}
}

// A request whose first token would be too late is refused before anything is booked. The time that it has
// waited counts. A request in time is not refused.
func TestTooLate(t *testing.T) {
	f := newFleet(1, 1, nil)
	busy := f.request(1, 8000)
	busy.LocalOK = false
	defer f.plan(t, busy).Release(f.now) // p1 works on it
	r := f.request(2, 8000)
	r.LocalOK = false
	free, err := f.pl.Explain(r, f.now)
	if err != nil {
		t.Fatal(err)
	}
	predicted := time.Duration(free.TTFT * float64(time.Millisecond))
	for _, c := range []struct {
		limit, waited time.Duration
		refused       bool
	}{
		{0, time.Hour, false},
		{2 * predicted, 0, false},
		{predicted / 2, 0, true},
		{2*predicted + time.Second, 2*predicted + time.Second, true},
	} {
		r.FirstBy, r.Waited = c.limit, c.waited
		b, err := f.pl.Plan(r, f.now)
		late, refused := errors.AsType[*TooLate](err)
		if refused != c.refused {
			t.Errorf("limit %v after %v: %v", c.limit, c.waited, err)
		}
		if refused && (late.Limit != c.limit || late.Predicted < c.limit || late.Retry() <= 0) {
			t.Errorf("limit %v after %v: %+v", c.limit, c.waited, late)
		}
		if b != nil {
			b.Release(f.now)
		}
		if n := f.prefill.Status(f.now)[0].Requests; n != 1 {
			t.Errorf("limit %v after %v: %d prefills are booked, want the first alone", c.limit, c.waited, n)
		}
	}
}

// An estimated length refuses no request: no replica is too small for it, and the prompt's own time does not
// make it late. It books an amount that can always be had. A known length can refuse.
func TestAnEstimateRefusesNothing(t *testing.T) {
	f := newFleet(2, 2, nil)
	f.firstBy = time.Second
	for _, splits := range []bool{true, false} {
		for tokens, exactly := range map[int]error{10_000_000: &NoReplica{}, 159_000: &TooLate{}, 100: nil} {
			r := f.request(7, 100)
			r.Tokens = tokens
			r.SplitOK = splits
			r.LocalOK = !splits
			_, err := f.pl.Explain(r, f.now)
			if none, refused := errors.AsType[*NoReplica](err); refused != (tokens > 160_000) ||
				refused && !none.TooLarge {
				t.Errorf("exactly %d tokens: %v", tokens, err)
			}
			b, err := f.pl.Plan(r, f.now)
			if fmt.Sprintf("%T", err) != fmt.Sprintf("%T", exactly) {
				t.Errorf("exactly %d tokens: %v, want %T", tokens, err, exactly)
			}
			b.Release(f.now)
			r.Exact = false
			b = f.plan(t, r)
			if got, most := b.Decision.Tokens, 160_000-1; got > most || got < min(tokens, most) {
				t.Errorf("an estimate of %d tokens books %d", tokens, got)
			}
			b.Release(f.now)
		}
	}
}

// An estimated length excludes no replica for its context, although other replicas have a longer context.
func TestAnEstimateLeavesNobodyOut(t *testing.T) {
	f := newFleet(1, 2, func(r *replica.Replica) {
		if r.ID != "d1" {
			r.Facts.MaxModelLen = 4096
		}
	})
	got := map[replica.ID]int{}
	for i := range 20 {
		r := f.request(uint32(i), 100)
		r.Tokens = 20_000
		r.LocalOK = false
		if _, err := f.pl.Plan(r, f.now); err == nil {
			t.Fatal("20,000 tokens are planned for prefill where 4,096 are all: this test tests nothing")
		}
		r.Exact = false
		b := f.plan(t, r)
		got[b.Prefill.ID]++
		got[b.Decode.ID]++
		b.Release(f.now)
	}
	if got["p1"] != 20 || got["d2"] == 0 {
		t.Errorf("chosen %v, want p1 each time and d2 some times", got)
	}
}

// The work before a prompt of estimated length can make the prompt late.
func TestAnEstimateIsLateBehindOthers(t *testing.T) {
	f := newFleet(1, 1, nil)
	busy := f.request(1, 100_000)
	busy.LocalOK = false
	defer f.plan(t, busy).Release(f.now)
	f.firstBy = time.Second
	r := f.request(2, 100)
	r.Exact, r.LocalOK = false, false
	if _, err := f.pl.Plan(r, f.now); err == nil {
		t.Error("planned behind a prompt of 100,000 tokens, want it refused")
	}
}

// Transfers share the network of both replicas. So the next transfer goes between two replicas without a
// transfer.
func TestTransfersWaitForEachOther(t *testing.T) {
	for _, fleet := range [][2]int{{3, 2}, {2, 3}} {
		f := newFleet(fleet[0], fleet[1], nil)
		f.set(Policy{Links: [replica.Links]float64{1e8, 1e8, 1e8, 1e8}, TieAbsolute: -1, TieRelative: -1})
		seen := map[replica.ID]int{}
		var all []*Booking
		for i := range uint32(6) {
			r := f.request(40+i, 4000)
			r.LocalOK = false
			b := f.plan(t, r)
			seen[b.Prefill.ID]++
			seen[b.Decode.ID]++
			all = append(all, b)
		}
		for id, n := range seen {
			if want := 6 / fleet[0]; id[0] == 'p' && n != want {
				t.Errorf("%v: %d of 6 go from %s, want %d", fleet, n, id, want)
			}
			if want := 6 / fleet[1]; id[0] == 'd' && n != want {
				t.Errorf("%v: %d of 6 go to %s, want %d", fleet, n, id, want)
			}
		}
		last := all[5].Decision.Plans[0].Terms.Transfer
		own := all[0].Decision.Plans[0].Terms.Transfer
		if last < 2.5*own || last > 3.5*own {
			t.Errorf("%v: the third transfer of a replica is priced %v ms, the first %v ms", fleet, last, own)
		}
		for _, b := range all {
			b.Release(f.now)
		}
		r := f.request(99, 4000)
		r.LocalOK = false
		b := f.plan(t, r)
		if got := b.Decision.Plans[0].Terms.Transfer; got > 1.1*own {
			t.Errorf("%v: %v ms when nothing is under way", fleet, got)
		}
		b.Release(f.now)
	}
}

// Two replicas have room twice as often as one.
func TestHowOftenThereIsRoom(t *testing.T) {
	every := func(replicas int) time.Duration {
		f := newFleet(2, replicas, nil)
		f.set(Policy{ExpectedOutput: longAnswers})
		for _, d := range f.ds {
			f.says(f.decode, d.ID, 9, 0, 0.99)
		}
		_, err := f.pl.Plan(f.request(1, 5000), f.now)
		full, ok := errors.AsType[*NoRoom](err)
		if !ok {
			t.Fatalf("%v, want NoRoom", err)
		}
		return full.Every
	}
	if one, two := every(1), every(2); one <= 0 || math.Abs(one.Seconds()/two.Seconds()-2) > 0.01 {
		t.Errorf("every %v with one, %v with two", one, two)
	}
}
