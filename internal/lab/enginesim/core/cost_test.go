package core

import (
	"testing"
	"time"
)

func TestCostOfPublishedPoints(t *testing.T) {
	preset, ok := FindPreset("8b")
	if !ok {
		t.Fatal("no preset")
	}
	c := preset.Cost
	c.Host = 0
	near := func(name string, got, want time.Duration) {
		t.Helper()
		if d := got - want; d < -want/10 || d > want/10 {
			t.Errorf("%s takes %v, want about %v", name, got, want)
		}
	}
	var w work
	w.add(0, 8192)
	near("prefill of 8,192 tokens", c.of(w), 191*time.Millisecond)
	w = work{}
	for range 32 {
		w.add(1024, 1)
	}
	near("decode of 32 sequences", c.of(w), 8500*time.Microsecond)
	alone := c.of(w)
	w.add(0, 1024)
	if mixed := c.of(w); mixed <= alone {
		t.Errorf("a prompt in a step with 32 decodes costs nothing: %v, %v", mixed, alone)
	}
	c.Speed = 2
	near("at twice the speed", c.of(w)*2, preset.Cost.of(w)-500*time.Microsecond)
}

func TestNoCost(t *testing.T) {
	var c Cost
	w := work{prefill: 100, decode: 5}
	if got := c.of(w); got != 0 {
		t.Errorf("with zero cost a step takes %v", got)
	}
	c.Host = 1
	if got := c.of(work{}); got != 0 {
		t.Errorf("a step without work takes %v", got)
	}
}

func TestPresets(t *testing.T) {
	for _, p := range Presets() {
		if q, ok := FindPreset(p.Name); !ok || q != p {
			t.Errorf("%s is not found", p.Name)
		}
		if p.KVTokens < 1e5 || p.TokenBytes < 5e4 || p.Cost.D0 < 1e-3 || p.Cost.D0 > 0.1 {
			t.Errorf("%+v is not plausible", p)
		}
	}
	if _, ok := FindPreset("none"); ok {
		t.Error("found a preset that does not exist")
	}
}
