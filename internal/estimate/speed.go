package estimate

import "math"

// Speed is the speed of one engine, as coefficients of two sums. The zero Speed is unknown.
//
//	prefill of u tokens behind c cached:  T0 + A*u + B*(u*c + u*u/2)   seconds
//	one decode step, batch n, k KV tokens: D0 + D1*n + D2*k            seconds
type Speed struct {
	T0 float64 `json:"prefill_base_s"`      // per step with a prompt
	A  float64 `json:"prefill_token_s"`     // per token
	B  float64 `json:"prefill_attention_s"` // per pair of a token and an earlier token
	D0 float64 `json:"step_base_s"`         // per decode step
	D1 float64 `json:"step_sequence_s"`     // per sequence in the step
	D2 float64 `json:"step_kv_token_s"`     // per KV token that the sequences hold
}

// DefaultSpeed is the profile of an unknown engine: an 8B model on one 80 GB card, in bfloat16.
func DefaultSpeed() Speed {
	return Speed{T0: 4.5e-3, A: 16.8e-6, B: 1.45e-9, D0: 6.6e-3, D1: 10.7e-6, D2: 40.8e-9}
}

// Rates returns the Speed of an engine that prefills so many tokens per second at any length, and decodes so
// many per second for a request alone. Further sequences make a step longer by the same factor as in the
// profile: otherwise an idle replica would look no better than a busy one. A rate that is not positive
// leaves its half unknown.
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

// Shared returns the seconds of [Speed.Prefill] that the prompt does not add if the engine has other prompts
// to compute. The fixed time of a step is paid once for all its prompts.
func (s Speed) Shared(uncached int) float64 { return s.T0 * SharedPart(uncached) }

// SharedPart returns the share of a step's fixed time that a prompt with so many uncached tokens leaves to
// other prompts in the step.
func SharedPart(uncached int) float64 { return max(0, 1-float64(max(uncached, 0))/stepTokens) }

// stepTokens is the smallest default number of tokens in a step (max_num_batched_tokens of vLLM 0.32: 2,048,
// and 8,192 on large GPUs).
const stepTokens = 2048

// Step returns the seconds of one decode step of batch sequences with kv tokens in total.
func (s Speed) Step(batch, kv int) float64 {
	return s.D0 + s.D1*float64(max(batch, 0)) + s.D2*float64(max(kv, 0))
}

// Marginal returns the seconds that a sequence of kv tokens adds to each step of its batch.
func (s Speed) Marginal(kv int) float64 { return s.D1 + s.D2*float64(max(kv, 0)) }

// KnowsPrefill reports whether the prefill half is set.
func (s Speed) KnowsPrefill() bool { return s.T0 > 0 || s.A > 0 || s.B > 0 }

// KnowsDecode reports whether the decode half is set.
func (s Speed) KnowsDecode() bool { return s.D0 > 0 || s.D1 > 0 || s.D2 > 0 }

// PrefillHalf returns the prefill half of s alone.
func (s Speed) PrefillHalf() Speed { return Speed{T0: s.T0, A: s.A, B: s.B} }

// DecodeHalf returns the decode half of s alone.
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

// Within returns how many tokens behind cached ones s computes in so many seconds.
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
