package kernels

import (
	"math"
	"testing"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*(1+math.Abs(b)) }

// tables returns tables in which every time is a simple formula, so that linear interpolation is exact.
func tables() *Tables {
	layer := newCurve(map[float64]float64{1: 11, 2: 12, 100: 110})
	chunk := newGrid(map[float64]map[float64]float64{10: {0: 10, 100: 110}, 20: {0: 20, 100: 220}})
	decode := newGrid(map[float64]map[float64]float64{1: {10: 10, 20: 20}, 2: {10: 20, 20: 40}})
	points := map[[4]float64]float64{}
	for _, u := range []float64{10, 20} {
		for _, k := range []float64{0, 100} {
			for _, n := range []float64{1, 2} {
				for _, d := range []float64{10, 20} {
					points[[4]float64{u, k, n, d}] = 1000 + u + k + 10*n + d
				}
			}
		}
	}
	points[[4]float64{15, 0, 1, 10}] = 5 // belongs to no complete grid
	return &Tables{
		Model: Model{Layers: 2, Experts: 8, TopK: 2}, layer: layer, once: newCurve(map[float64]float64{1: 0.5}),
		head:      newCurve(map[float64]float64{1: 1, 2: 2}),
		attention: attention{chunk, decode, newBox(points)},
	}
}

func TestLookups(t *testing.T) {
	tb := tables()
	for _, tt := range []struct {
		name string
		b    core.Batch
		want float64
	}{
		{"decode", core.Batch{Decode: 2, Context: 30}, 30},
		{"decode beyond", core.Batch{Decode: 2, Context: 80}, 80},
		{"chunk", core.Batch{Chunks: []core.Chunk{{New: 15, Computed: 50}}}, (60 + 120) / 2},
		{"two chunks", core.Batch{Chunks: []core.Chunk{{New: 10}, {New: 10, Computed: 100}}}, 10 + 110},
		{
			"both",
			core.Batch{Decode: 2, Context: 30, Chunks: []core.Chunk{{New: 15, Computed: 50}}},
			1000 + 15 + 50 + 20 + 15,
		},
	} {
		if got := tb.attention.at(&tt.b); !near(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	if got := tb.layer.at(51); !near(got, 61) {
		t.Errorf("51 tokens: %v, want 61", got)
	}
	if got := tb.layer.at(200); !near(got, 210) {
		t.Errorf("200 tokens: %v, want 210", got)
	}
}

func TestRanksWaitForEachOther(t *testing.T) {
	tb := tables()
	a, b := &core.Batch{Decode: 2, Context: 30}, &core.Batch{Decode: 1, Context: 10}
	one, other := tb.Step([]*Rank{a}, Tuning{}), tb.Step([]*Rank{b}, Tuning{})
	if one != 2*(12+30)+0.5+2 || other >= one {
		t.Errorf("separate steps of the ranks take %v and %v", one, other)
	}
	if got := tb.Step([]*Rank{a, b}, Tuning{Scale: 2, Host: 7, Token: 100}); got != 2*one+7+300 {
		t.Errorf("a common step takes %v, want %v", got, 2*one+307)
	}
	tb.experts = newGrid(map[float64]map[float64]float64{1: {1: 1, 8: 8}, 4: {1: 4, 8: 32}})
	empty := &core.Batch{}
	// Four tokens, one of them a dummy. Each token misses an expert with probability 3/4, and a rank has four
	// of the eight experts.
	c := &core.Batch{Decode: 3, Context: 30}
	want := tb.Step([]*Rank{c}, Tuning{}) - 2*tb.experts.at(3, 8*(1-math.Pow(0.75, 3))) +
		2*tb.experts.at(2, 4*(1-math.Pow(0.75, 4)))
	if got := tb.Step([]*Rank{c, empty}, Tuning{}); !near(got, want) {
		t.Errorf("with experts %v, want %v", got, want)
	}
}
