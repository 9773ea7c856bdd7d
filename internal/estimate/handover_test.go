package estimate

import (
	"math"
	"testing"
)

// Before the first sample the seed is the estimate. Then the estimate is the time that the faster samples
// have in common, without other waits.
func TestHandover(t *testing.T) {
	var h Handover
	if got := h.Seconds(0.002); got != 0.002 {
		t.Errorf("nothing was learned: %g s, want the seed", got)
	}
	h.Learn(0.002, 0.04, 0.01)
	if got := h.Seconds(0.002); got != 0.002 {
		t.Errorf("after one sample: %g s, want the seed still", got)
	}
	for range 3 {
		for _, took := range []float64{0.02, 0.3, 1.5, 0.021} {
			h.Learn(0.002, took+0.01, 0.01)
		}
	}
	if got := h.Seconds(0.002); math.Abs(got-0.021) > 1e-9 {
		t.Errorf("two of four take 0.02 and 0.021 s: %g s", got)
	}
	for range 8 {
		h.Learn(0.002, 9, 8.9) // the link's part of it is unknown
	}
	if got := h.Seconds(0.002); math.Abs(got-0.021) > 1e-9 {
		t.Errorf("long transfers say nothing: %g s", got)
	}
	for range 8 {
		h.Learn(0.002, 7, 0.01)
	}
	if got := h.Seconds(0.002); got != HandoverMost {
		t.Errorf("all take 7 s: %g s, want no more than can be common to all", got)
	}
	for range 8 {
		h.Learn(0.002, 0.001, 0.01)
	}
	if got := h.Seconds(0.002); got != 0 {
		t.Errorf("all were there sooner than their bytes could be: %g s, want 0", got)
	}
}
