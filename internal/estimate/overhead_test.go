package estimate

import (
	"testing"
	"time"
)

// measuredAs learns from prompts of these lengths on an engine with this speed, two seconds apart, and
// returns the fit.
func measuredAs(is Speed, tokens ...int) Speed {
	var fit, pool DecayingFit
	now := time.Unix(1000, 0)
	for _, u := range tokens {
		now = now.Add(2 * time.Second)
		took := is.Prefill(u, 0)
		fit.LearnPrompts(&pool, Took(PromptTime, DefaultSpeed().PrefillParts(u, 0), took, now))
	}
	f, known := fit.Of(&pool.SpeedFit, 0)
	if !known {
		return DefaultSpeed()
	}
	return DefaultSpeed().WithPrefill(f)
}

// Three prompts of one length cannot separate the fixed time of a prefill from the time per token. A prompt
// of another length must not be predicted as if all of the time were per token.
func TestAFixedShareIsNoRate(t *testing.T) {
	for _, c := range []struct {
		name  string
		is    Speed
		learn []int
		off   float64 // largest allowed factor between the predicted and the real time of 2,048 tokens
	}{
		{"15 ms and 20 µs a token", Speed{T0: 15e-3, A: 20e-6}, []int{512, 512, 512}, 1.3},
		{"the GPU of docs/compatibility.md", Speed{T0: 19.5e-3, A: 16e-6, B: 1.4e-9}, []int{512, 512, 512}, 1.35},
		{"the same, shorter prompts", Speed{T0: 19.5e-3, A: 16e-6, B: 1.4e-9}, []int{128, 128, 128}, 1.3},
		{"the same, two lengths", Speed{T0: 19.5e-3, A: 16e-6, B: 1.4e-9}, []int{512, 128, 512, 128}, 1.15},
		// The samples fit this too: the engine must not count as fast either.
		{"a truly slow engine", Speed{T0: 4.5e-3, A: 40e-6, B: 1.4e-9}, []int{512, 512, 512}, 1.5},
		{"a truly slow engine, a long prompt", Speed{T0: 4.5e-3, A: 40e-6, B: 1.4e-9}, []int{512, 512, 4096}, 1.15},
		{"a very slow engine", Speed{T0: 20e-3, A: 200e-6, B: 10e-9}, []int{512, 512, 512}, 1.5},
		{
			"a very slow engine, mixed",
			Speed{T0: 45e-3, A: 168e-6, B: 14.5e-9},
			[]int{300, 4000, 900, 2000, 500, 3000, 100, 1500},
			1.1,
		},
		{"a fast engine", Speed{T0: 2e-3, A: 6e-6, B: .5e-9}, []int{512, 512, 512}, 1.3},
	} {
		got := measuredAs(c.is, c.learn...)
		p, want := got.Prefill(2048, 0), c.is.Prefill(2048, 0)
		if ratio := max(p/want, want/p); ratio > c.off {
			t.Errorf("%s: 2,048 tokens are predicted to take %.1f ms and take %.1f, off by %.2f times, at most %.2f",
				c.name, p*1e3, want*1e3, ratio, c.off)
		}
	}
}
