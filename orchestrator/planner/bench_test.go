package planner

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/scoring"
)

// benchmarkPlan measures Plan and Release of a prompt of 131,072 tokens, half of it on one prefill replica
// and a quarter on one decode replica, with some load everywhere and the decision recorded. What a plan lets
// the index guess is forgotten after it, so that each one meets the same half match and copies its keys
// again.
func benchmarkPlan(b *testing.B, prefills, decodes int, policy Policy) {
	f := newFleet(prefills, decodes, func(r *replica.Replica) { r.Facts.Blocks = 80_000 })
	f.set(policy)
	f.store(b, f.prefill, "p2", 1, 4096)
	f.store(b, f.decode, "d2", 1, 2048)
	for i, r := range f.ps {
		f.says(f.prefill, r.ID, 0, 0, float64(i%5)/10)
	}
	for i, r := range f.ds {
		f.says(f.decode, r.ID, 4+i%5, 0, 0.2)
	}
	r := f.request(1, 131_072)
	later := f.now.Add(time.Hour)
	first := f.plan(b, r)
	if first.Mode != Split || first.MatchedPrefill != 65_536 {
		b.Fatalf("%v with %d tokens matched, want a split with half", first.Mode, first.MatchedPrefill)
	}
	first.Release(f.now)
	b.ReportAllocs()
	for b.Loop() {
		booking, err := f.pl.Plan(r, f.now)
		if err != nil {
			b.Fatal(err)
		}
		booking.Release(f.now)
		f.prefill.Expire(later)
		f.decode.Expire(later)
	}
}

func BenchmarkPlan16x16(b *testing.B) { benchmarkPlan(b, 16, 16, Policy{}) }
func BenchmarkPlan64x64(b *testing.B) { benchmarkPlan(b, 64, 64, Policy{}) }

// Alpha is fixed, so that work booked a moment ago makes no replica more expensive. Otherwise the first
// plans would meet hundreds of replicas whose pairs all tie, which the next benchmark measures, and not the
// half match.
func BenchmarkPlan512x512(b *testing.B) {
	weights := usualWeights()
	weights.Alpha = scoring.Alpha{Value: 1}
	benchmarkPlan(b, 512, 512, Policy{Weights: weights})
}

// BenchmarkPlanIdle512x512 measures Plan and Release if nearly all of 262,144 pairs are equal: all replicas
// are idle, and none has blocks of the prompt of 2,000 tokens, which may only be split.
func BenchmarkPlanIdle512x512(b *testing.B) {
	f := newFleet(512, 512, nil)
	r := f.request(1, 2000)
	r.LocalOK = false
	later := f.now.Add(time.Hour)
	b.ReportAllocs()
	for b.Loop() {
		booking := f.plan(b, r)
		if booking.Decision.Ties < 10_000 {
			b.Fatalf("%d plans are as good, want most", booking.Decision.Ties)
		}
		booking.Release(f.now)
		f.prefill.Expire(later)
		f.decode.Expire(later)
	}
}
