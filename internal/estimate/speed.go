package estimate

import "math"

// Speed is how fast one engine is, as coefficients of two sums. The zero Speed is unknown.
//
//	prefill of u tokens behind c cached:  T0 + A*u + B*(u*c + u*u/2)   seconds
//	one decode step, batch n, k KV tokens: D0 + D1*n + D2*k            seconds
type Speed struct {
	T0 float64 `json:"prefill_base_s"`      // of each step that prefills
	A  float64 `json:"prefill_token_s"`     // of each token
	B  float64 `json:"prefill_attention_s"` // of each token and each one before it
	D0 float64 `json:"step_base_s"`         // of each step that decodes
	D1 float64 `json:"step_sequence_s"`     // of each sequence in it
	D2 float64 `json:"step_kv_token_s"`     // of each token of theirs
}

// DefaultSpeed is the profile of an engine that nobody has measured: an 8B model on one 80 GB card,
// bfloat16.
func DefaultSpeed() Speed {
	return Speed{T0: 4.5e-3, A: 16.8e-6, B: 1.45e-9, D0: 6.6e-3, D1: 10.7e-6, D2: 40.8e-9}
}

// Rates returns the Speed that prefills so many tokens a second, whatever their number, and makes so many
// for a request that decodes alone: others beside it make steps longer as much as they do in the profile,
// since a replica that has nothing to do would else be as good as one that is full of streams. A rate that
// is not positive leaves its half unknown.
func Rates(prefill, decode float64) Speed {
	var s Speed
	if prefill > 0 {
		s.A = 1 / prefill
	}
	if decode > 0 {
		profile := DefaultSpeed()
		slower := 1 / decode / profile.D0
		s.D0 = slower * profile.D0
		s.D1 = slower * profile.D1
		s.D2 = slower * profile.D2
	}
	return s
}

// Prefill returns the seconds for uncached tokens behind cached ones.
func (s Speed) Prefill(uncached, cached int) float64 {
	u, c := float64(max(uncached, 0)), float64(max(cached, 0))
	return s.T0 + s.A*u + s.B*(u*c+u*u/2)
}

// Shared returns the seconds of [Speed.Prefill] that such a prompt does not add to the work of an engine
// with others to compute: what a step takes whatever it computes is paid once for all prompts in it.
func (s Speed) Shared(uncached int) float64 { return s.T0 * SharedPart(uncached) }

// SharedPart returns the part of a step's own time that a prompt with so many tokens to compute leaves to
// others in the same step.
func SharedPart(uncached int) float64 { return max(0, 1-float64(max(uncached, 0))/stepTokens) }

// stepTokens is how many tokens an engine computes in a step at least, by default (max_num_batched_tokens of
// vLLM 0.32: 2,048, and 8,192 on large GPUs).
const stepTokens = 2048

// Step returns the seconds of one decode step of batch sequences that hold kv tokens together.
func (s Speed) Step(batch, kv int) float64 {
	return s.D0 + s.D1*float64(max(batch, 0)) + s.D2*float64(max(kv, 0))
}

// Marginal returns the seconds by which a sequence of kv tokens makes each step of its batch longer.
func (s Speed) Marginal(kv int) float64 { return s.D1 + s.D2*float64(max(kv, 0)) }

// KnowsPrefill reports whether the prefill half is set.
func (s Speed) KnowsPrefill() bool { return s.T0 > 0 || s.A > 0 || s.B > 0 }

// KnowsDecode reports whether the decode half is set.
func (s Speed) KnowsDecode() bool { return s.D0 > 0 || s.D1 > 0 || s.D2 > 0 }

// PrefillHalf returns what s says of prefill alone.
func (s Speed) PrefillHalf() Speed { return Speed{T0: s.T0, A: s.A, B: s.B} }

// DecodeHalf returns what s says of decode steps alone.
func (s Speed) DecodeHalf() Speed { return Speed{D0: s.D0, D1: s.D1, D2: s.D2} }

// Or returns s with each unknown half taken from other.
func (s Speed) Or(other Speed) Speed {
	if !s.KnowsPrefill() {
		s.T0 = other.T0
		s.A = other.A
		s.B = other.B
	}
	if !s.KnowsDecode() {
		s.D0 = other.D0
		s.D1 = other.D1
		s.D2 = other.D2
	}
	return s
}

// Within returns how many tokens behind cached ones are computed in so many seconds, by s.
func (s Speed) Within(seconds float64, cached int) int {
	left := seconds - s.T0
	if left <= 0 {
		return 0
	}
	each := s.A + s.B*float64(max(cached, 0))
	if s.B <= 0 {
		if each <= 0 {
			return math.MaxInt32
		}
		return int(min(left/each, math.MaxInt32))
	}
	return int(min((math.Sqrt(each*each+2*s.B*left)-each)/s.B, math.MaxInt32))
}
