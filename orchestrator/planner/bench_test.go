package planner

import (
	"testing"

	"tandem/internal/replica"
)

// benchmarkPlan measures Plan and Release of a prompt of 131,072 tokens, half of it on one prefill replica and a quarter on one decode replica, with
// some load everywhere and the decision recorded.
func benchmarkPlan(b *testing.B, prefills, decodes int, edit func(*fleet)) {
	f := newFleet(prefills, decodes, func(r *replica.Replica) { r.Facts.Blocks = 80_000 })
	f.store(b, f.prefill, "p2", 1, 4096)
	f.store(b, f.decode, "d2", 1, 2048)
	for i, r := range f.ps {
		f.prefill.Observe(r.ID, f.load(1, i%3, 0.1), f.now)
	}
	for i, r := range f.ds {
		f.decode.Observe(r.ID, f.load(4+i%5, 0, 0.2), f.now)
	}
	r := f.request(1, 131_072)
	if edit != nil {
		edit(f)
	}
	f.plan(b, r).Release(f.now)
	b.ReportAllocs()
	for b.Loop() {
		booking, err := f.pl.Plan(r, f.now)
		if err != nil {
			b.Fatal(err)
		}
		booking.Release(f.now)
	}
}

func BenchmarkPlan16x16(b *testing.B) { benchmarkPlan(b, 16, 16, nil) }
func BenchmarkPlan64x64(b *testing.B) { benchmarkPlan(b, 64, 64, nil) }
