package estimate_test

import (
	"math"
	"testing"

	"github.com/tandem-router/tandem/internal/estimate"
)

// Prompts in one step share the step's fixed time: together they take as long as one prompt with all their
// tokens. Prompts that fill a step alone share nothing.
func TestPromptsOfAStepShareItsOwnTime(t *testing.T) {
	s := estimate.Speed{T0: 0.01, A: 50e-6}
	added := func(tokens int) float64 { return s.Prefill(tokens, 0) - s.Shared(tokens) }
	if got, want := 32*added(64), s.Prefill(2048, 0); math.Abs(got-want) > 1e-9 {
		t.Errorf("32 prompts of 64 tokens take %v s, one of 2,048 takes %v", got, want)
	}
	for _, tokens := range []int{2048, 100_000} {
		if got := s.Shared(tokens); got != 0 {
			t.Errorf("a prompt of %d tokens shares %v s", tokens, got)
		}
	}
	if got := s.Shared(0); got != s.T0 {
		t.Errorf("one that has all its tokens shares %v s", got)
	}
}
