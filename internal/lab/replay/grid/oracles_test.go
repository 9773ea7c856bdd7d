package grid

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
)

// The capacity of oracles is searched in Tandem's shape and in an oracle's best shape. The results show
// which losses no policy could avoid.
func TestOracles(t *testing.T) {
	g := &Ground{Kind: "extract-bursts", Shape: "4P4D", Cache: 1, Step: 8192, Shares: []float64{0.7}}
	p, err := NewPlayer(g, Options{Seed: 1, Requests: 30})
	if err != nil {
		t.Fatal(err)
	}
	fleetOf(p, func(prefill int, form, _ string) float64 {
		switch {
		case form == "oracle-terms" && prefill == 6:
			return 20
		case slices.Contains(Oracles, form):
			return 11
		case form == ours:
			return 8
		}
		return 10
	})
	lines, err := p.Cells(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l := &lines[0]
	if err := p.AddOracles(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	if len(l.Known) != len(Oracles) || math.Abs(l.KnownRatio()-1.1) > 0.05 || l.Known[1].Policy != Oracles[1] {
		t.Errorf("oracles in the cell: %+v, %.2f of the rival", l.Known, l.KnownRatio())
	}
	s, err := p.Shapes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !s.WantsOracles() {
		t.Error("want oracles to be missing")
	}
	if err := p.AddOraclesTo(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if k := s.Usual.Known; s.WantsOracles() || k == nil || k.Shape != "6P2D" || k.Policy != "oracle-terms" {
		t.Errorf("the best oracle: %+v", k)
	}
	var text, page bytes.Buffer
	if err := PrintShaped(&text, []Shaped{*s}); err != nil || !strings.Contains(text.String(), "all known") {
		t.Errorf("%v: %s", err, text.String())
	}
	if err := Page(&page, lines, 1, []Shaped{*s}); err != nil || !strings.Contains(page.String(), "6P2D") {
		t.Errorf("the page: %v", err)
	}
}

func TestWhatNobodyCouldHelp(t *testing.T) {
	line := func(good, rival, known, late float64) Line {
		k := Known{Figures: Figures{Usual: known, Tight: 0.5, TTFT: late}, Capacity: 2}
		return Line{
			Share: gapShare, Enough: 0.9, Bound: 1, Capacity: Capacities{Ours: 3, Rival: 1},
			Ours: Figures{Usual: good, Tight: 0.5, TTFT: 2}, Rival: Figures{Usual: rival, Tight: 0.4, TTFT: 1},
			Known: slices.Repeat([]Known{k}, len(Oracles)),
		}
	}
	sum := SumKnown([]Line{
		line(0.95, 0.99, 0.99, 1), // Tandem loses and is late; the oracle does not lose and is not late
		line(0.95, 0.99, 0.95, 2), // Tandem and every oracle lose and are late
		line(0.99, 0.95, 0.99, 2),
		{Share: gapShare}, // no oracle has played it
	})[0]
	want := KnownSummary{
		Name: "all", Cells: 3, Lost: 2, LostToo: 1, Least: 2, Mean: 2, Share: 1.5, Tight: 0.5, Ours: 0.5,
		Late: 3, LateToo: 2,
	}
	if sum != want {
		t.Errorf("%+v, want %+v", sum, want)
	}
}
