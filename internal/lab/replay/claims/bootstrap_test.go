package claims

import (
	"math"
	"testing"
)

// answers returns requests with these times to first token, each in its own session.
func answers(ttfts ...float64) []Answer {
	out := make([]Answer, len(ttfts))
	for i, x := range ttfts {
		out[i] = Answer{Session: int32(i), TTFT: float32(x), Prompt: 100, Cached: int32(10 * x)}
	}
	return out
}

func TestCompareByHand(t *testing.T) {
	// The fifth answer of b has no partner in a.
	a, b := []*Trial{{Answers: answers(1, 2, 3, 4)}}, []*Trial{{Answers: answers(2, 4, 6, 8, 1000)}}
	for _, tt := range []struct {
		name string
		f    figure
		with func(a, b float64) float64
		want float64
	}{
		{"mean", meanTTFT, reduction, 0.5},
		{"median", p50TTFT, ratio, 0.5},
		{"p99", p99TTFT, difference, -4},
		{"hit", hit, ratio, 0.5}, // of 100 of 400 and 200 of 400 tokens
	} {
		e := compare(tt.f, a, b, tt.with)
		if math.Abs(e.Value-tt.want) > 1e-6 || e.Low > e.Value || e.High < e.Value {
			t.Errorf("%s: %+v, want %g", tt.name, e, tt.want)
		}
	}
	if e := compare(meanTTFT, a, b, ratio); e.High-e.Low > 1e-6 {
		t.Errorf("every request is twice as fast, but the ratio has an interval: %+v", e)
	}
}

// Requests that differ only by chance have an interval around zero. Its width agrees with the standard
// error of the mean.
func TestIntervalOfChance(t *testing.T) {
	var xs, ys []float64
	for i := range 400 {
		xs, ys = append(xs, 10+float64(i%2)), append(ys, 10+float64(i/2%2))
	}
	e := compare(meanTTFT, []*Trial{{Answers: answers(xs...)}}, []*Trial{{Answers: answers(ys...)}}, difference)
	half := 1.96 * math.Sqrt(0.5) / 20 // differences of -1, 0, 0, 1
	if e.Value != 0 || math.Abs(e.Low+half) > 0.02 || math.Abs(e.High-half) > 0.02 {
		t.Errorf("%+v, want 0 within %g", e, half)
	}
}

// The bootstrap draws whole sessions: forty calls of one session give no more information than one call.
func TestSessionsAreDrawnWhole(t *testing.T) {
	var a, b []Answer
	for i := range 40 {
		for s := range 2 {
			a = append(a, Answer{Session: int32(s), Call: int32(i), TTFT: float32(1 + s)})
			b = append(b, Answer{Session: int32(s), Call: int32(i), TTFT: 2})
		}
	}
	e := compare(meanTTFT, []*Trial{{Answers: a}}, []*Trial{{Answers: b}}, difference)
	if e.Low != -1 || e.High != 0 {
		t.Errorf("%+v, want the whole range of two sessions", e)
	}
}
