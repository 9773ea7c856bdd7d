package core

import (
	"cmp"
	"time"
)

// Cost is the time of a step, in seconds. The zero Cost takes no time.
//
//	prefill alone   T0 + A*u + B*(u*c + u*u/2)           u new tokens after c computed ones
//	decode alone    D0 + D1*n + D2*k                     n sequences with k tokens of KV in all
//	both            max(D0, T0 + A*(u+n)) + B*(...) + D1*n + D2*k
//
// Each step also takes Host.
type Cost struct {
	T0, A, B   float64
	D0, D1, D2 float64
	Host       float64
	Speed      float64 // 2: twice as fast; 0 means 1
	// Post is the time to post one descriptor of a read from a peer. The thread that makes the steps posts
	// them.
	Post float64
}

// work is what a step computes.
type work struct {
	prefill   int     // u
	attention float64 // u*c + u*u/2
	decode    int     // n
	context   int     // k
}

func (w *work) add(computed, chunk int) {
	if chunk == 1 {
		w.decode++
		w.context += computed + 1
		return
	}
	w.prefill += chunk
	w.attention += float64(chunk) * (float64(computed) + float64(chunk)/2)
}

// of returns the time of w.
func (c *Cost) of(w work) time.Duration {
	if *c == (Cost{}) || w.prefill+w.decode == 0 {
		return 0
	}
	base := c.T0 + c.A*float64(w.prefill+w.decode)
	switch {
	case w.prefill == 0:
		base = c.D0
	case w.decode > 0:
		base = max(c.D0, base)
	}
	s := c.Host + base + c.B*w.attention + c.D1*float64(w.decode) + c.D2*float64(w.context)
	return time.Duration(s / cmp.Or(c.Speed, 1) * 1e9)
}

// Preset is a GPU and a model: the cost of steps and the KV capacity.
type Preset struct {
	Name       string
	Cost       Cost
	KVTokens   int // capacity in tokens, estimated
	TokenBytes int // bytes of KV per token
}

// Presets are fits of measured vLLM kernels (bf16), with 0.5 ms of host time per step. The last number of a
// name is the tensor-parallel size.
func Presets() []Preset {
	return []Preset{
		preset("h100-llama-8b-1", 4.5, 16.8, 1.45, 6.6, 10.7, 40.8, 408e3, 131072),
		preset("h100-qwen2.5-7b-1", 4.0, 16.6, 1.12, 6.1, 8.3, 17.9, 946e3, 57344),
		preset("h100-qwen3-32b-2", 9.8, 43.2, 2.92, 14.0, 27.6, 41.5, 280e3, 262144),
		preset("h100-llama-70b-4", 10.7, 55.2, 2.13, 15.5, 32.5, 26.2, 418e3, 327680),
		preset("h100-llama-70b-8", 7.5, 37.1, 0.68, 10.2, 23.9, 13.4, 1270e3, 327680),
		preset("h200-llama-8b-1", 2.7, 20.8, 1.12, 4.7, 11.8, 30.2, 827e3, 131072),
		preset("h200-qwen3-32b-2", 5.7, 52.4, 1.95, 10.4, 28.6, 29.0, 699e3, 262144),
		preset("h200-llama-70b-4", 7.1, 64.8, 0.64, 11.6, 40.4, 18.5, 1090e3, 327680),
		preset("a100-llama-8b-1", 6.4, 53.7, 3.36, 11.2, 27.1, 79.2, 408e3, 131072),
		preset("a100-qwen3-32b-2", 15.1, 125, 5.89, 24.9, 73.4, 82.1, 280e3, 262144),
		preset("a100-llama-70b-4", 17.1, 158, 2.44, 28.0, 105, 53.8, 418e3, 327680),
	}
}

// preset takes the published table's units: ms, us, ns for t0, a, b and for d0, d1, d2.
func preset(name string, t0, a, b, d0, d1, d2, tokens float64, bytes int) Preset {
	return Preset{Name: name, KVTokens: int(tokens), TokenBytes: bytes, Cost: Cost{
		T0: t0 * 1e-3, A: a * 1e-6, B: b * 1e-9, D0: d0 * 1e-3, D1: d1 * 1e-6, D2: d2 * 1e-9, Host: 0.5e-3,
	}}
}

// FindPreset returns the preset with this name. "8b" and "70b" are the H100 presets; "70b" has four GPUs.
func FindPreset(name string) (Preset, bool) {
	switch name {
	case "8b":
		name = "h100-llama-8b-1"
	case "70b":
		name = "h100-llama-70b-4"
	}
	for _, p := range Presets() {
		if p.Name == name {
			return p, true
		}
	}
	return Preset{}, false
}
