package suite

import (
	"math"
	"testing"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

func TestCross(t *testing.T) {
	for _, tt := range []struct {
		name                     string
		low, atLow, high, atHigh float64
		want                     float64
	}{
		{"between", 2, 0.95, 3, 0.85, 2.5},
		{"at the lower one", 2, 0.9, 3, 0.5, 2},
		{"a steep fall", 2, 1, 2.1, 0.5, 2.02},
		{"below both, one gap at most", 2, 0.5, 3, 0.45, 1},
		{"above both, one gap at most", 2, 0.99, 3, 0.98, 4},
		{"no fall", 2, 0.9, 3, 0.9, 2.5},
	} {
		if got := cross(tt.low, tt.atLow, tt.high, tt.atHigh); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%s: %g, want %g", tt.name, got, tt.want)
		}
	}
}

// at makes a trial in which so many of ten requests were good.
func at(policy string, load float64, goods int) *Trial {
	r := &Trial{Setting: Setting{Policy: policy, Load: load}, Answers: make([]Answer, 10)}
	for i := range r.Answers {
		r.Answers[i].Session = int32(i)
		if i >= goods {
			r.Answers[i].TTFT = 6
		}
	}
	return r
}

func TestGainIsOverTheBest(t *testing.T) {
	f := func(policy string, low, high float64) []crossing {
		x := found{below: at(policy, low, 10), above: at(policy, high, 8)}
		return []crossing{x.crossing()}
	}
	e := gain(f("ours", 2, 4), map[string][]crossing{"a": f("a", 1, 2), "b": f("b", 2, 2.5)})
	if want := 3/2.25 - 1; math.Abs(e.Value-want) > 1e-6 || e.Low > e.Value || e.High < e.Value {
		t.Errorf("%+v, want %g over the better of 1.5 and 2.25", e, want)
	}
}

// One request of 100 tokens on each of two prefill replicas and one of 300 on a third; one decode replica
// decodes what the other one prefills.
func TestImbalanceByHand(t *testing.T) {
	r := &Trial{Answers: []Answer{
		{Session: 0, Prompt: 100, Replica: [2]int16{0, 0}},
		{Session: 1, Prompt: 100, Replica: [2]int16{1, 1}},
		{Session: 2, Prompt: 400, Cached: 100, Output: 5, Replica: [2]int16{2, 0}},
		{Session: 3, Prompt: 10, Replica: [2]int16{-1, 1}},
		{Session: 4, Prompt: 9999, Output: 9999, Refused: true, Replica: [2]int16{-1, -1}},
	}}
	cost := &core.Cost{A: 1, D1: 2}
	if got := imbalance(r, ones(5), [2]int{3, 2}, cost); math.Abs(got-300/(500.0/3)) > 1e-9 {
		t.Errorf("%g, want 300 over a mean of 166.7", got)
	}
	if got, want := imbalance(r, []float64{1, 1, 0, 100, 0}, [2]int{3, 2}, cost), 2.0; got != want {
		t.Errorf("%g, want %g: one decode replica has all the work of its pool", got, want)
	}
}
