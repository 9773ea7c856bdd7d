package core

import (
	"math"
	"testing"
)

// FitCost recovers the formula from steps that follow it.
func TestFitCostFindsTheFormula(t *testing.T) {
	want := Cost{T0: 0.0107, A: 55e-6, B: 2e-9, D0: 0.0155, D1: 32e-6, D2: 26e-9}
	var steps []Batch
	var seconds []float64
	for _, size := range []int{64, 512, 2048, 8192} {
		for _, before := range []int{0, 4096} {
			steps = append(steps, Batch{Chunks: []Chunk{{New: size, Computed: before}}},
				Batch{Decode: size / 32, Context: size / 32 * (1000 + before)})
		}
	}
	for i := range steps {
		seconds = append(seconds, want.of(steps[i].work()).Seconds())
	}
	got := FitCost(steps, seconds)
	for name, pair := range map[string][2]float64{
		"T0": {got.T0, want.T0}, "A": {got.A, want.A}, "B": {got.B, want.B},
		"D0": {got.D0, want.D0}, "D1": {got.D1, want.D1}, "D2": {got.D2, want.D2},
	} {
		if math.Abs(pair[0]/pair[1]-1) > 1e-3 { // steps are rounded to nanoseconds
			t.Errorf("%s is %g, want %g", name, pair[0], pair[1])
		}
	}
}
