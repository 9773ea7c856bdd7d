package planner

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/scoring"
)

// pullers is a fleet of engines that pull blocks from each other. p1 and d1, which take no requests, have
// most of a prompt of 8,000 tokens.
func pullers(t *testing.T) (*fleet, *Request) {
	f := newFleet(2, 3, func(r *replica.Replica) { r.PullPort = 5710 })
	f.set(Policy{Piece: 100 * time.Millisecond})
	f.store(t, f.prefill, "p1", 1, 400)
	f.store(t, f.decode, "d1", 1, 480)
	r := f.request(1, 8000)
	r.SplitOK, r.Pieces = false, true
	r.Pulls, r.PullsWhole = true, true
	for _, rs := range [][]replica.Replica{f.ps, f.ds} {
		rs[0].Draining = true
	}
	f.prefill.SetMembers(f.ps, f.now)
	f.decode.SetMembers(f.ds, f.now)
	return f, r
}

// A decode replica that computes a prompt pulls from the engine of either pool that has most of it, if the
// engines are set up for that, and if the request and its replica allow it.
func TestWhoPullsFromWhom(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(f *fleet, r *Request)
		want   replica.ID
	}{
		"a decode replica has most": {func(*fleet, *Request) {}, "d1"},
		"a prefill replica has it": {
			func(f *fleet, r *Request) { r.AvoidDecode = []replica.ID{"d1"} }, "p1",
		},
		"both failed the request": {
			func(f *fleet, r *Request) { r.AvoidDecode = []replica.ID{"d1", "p1"} }, "",
		},
		"its connector cannot": {func(_ *fleet, r *Request) { r.Pulls = false }, ""},
		"by a piece only, and its engine gets none": {
			func(f *fleet, r *Request) { r.PullsWhole = false; f.set(Policy{}) }, "",
		},
		"by a piece only":         {func(_ *fleet, r *Request) { r.PullsWhole = false }, "d1"},
		"neither whole nor apart": {func(_ *fleet, r *Request) { r.PullsWhole, r.Pieces = false, false }, ""},
		"the engine cannot": {
			func(f *fleet, _ *Request) {
				f.ds[1].PullPort, f.ds[2].PullPort = 0, 0
				f.decode.SetMembers(f.ds, f.now)
			}, "",
		},
		"no seconds": {
			func(f *fleet, _ *Request) {
				f.set(Policy{Weights: scoring.Weights{Units: scoring.InRaw}})
			}, "",
		},
		"other versions": {
			func(f *fleet, _ *Request) {
				f.ds[0].Facts.Version, f.ps[0].Facts.Version = "0.20.0", "0.20.0"
				f.prefill.SetMembers(f.ps, f.now)
				f.decode.SetMembers(f.ds, f.now)
			}, "",
		},
	} {
		f, r := pullers(t)
		tt.change(f, r)
		b := f.plan(t, r)
		on := b.Decision.Plans[0].OnDecode
		if b.Mode != Local || b.Pull().From != tt.want || on.Source != tt.want || on.Tokens != b.Pull().Tokens {
			t.Errorf("%s: %v on %s pulls %d tokens from %q, and the record says %+v; want a pull from %q",
				name, b.Mode, b.Decode.ID, b.Pull().Tokens, b.Pull().From, on.Pulled, tt.want)
		}
		b.Release(f.now)
	}
}

// The first token of a pull is predicted later than that of a match of the same length, and sooner than that
// of a prompt without either.
func TestThePriceOfALocalPull(t *testing.T) {
	plan := func(change func(f *fleet, r *Request)) *Decision {
		f, r := pullers(t)
		change(f, r)
		b := f.plan(t, r)
		b.Release(f.now)
		return b.Decision
	}
	pulled := plan(func(*fleet, *Request) {})
	computed := plan(func(_ *fleet, r *Request) { r.Pulls = false })
	found := plan(func(f *fleet, _ *Request) {
		f.ds[0].Draining = false
		f.decode.SetMembers(f.ds, f.now)
	})
	if !(found.TTFT < pulled.TTFT && pulled.TTFT < computed.TTFT) || found.Decode != "d1" {
		t.Errorf("with the blocks there %.1f ms, pulled %.1f ms, computed %.1f ms; want them in this order",
			found.TTFT, pulled.TTFT, computed.TTFT)
	}
	if one := pulled.Plans[0]; one.Terms.Transfer <= 0 || one.Terms.Total() != one.Total {
		t.Errorf("the terms are %+v", one.Terms)
	}
}
