package grid

import (
	"bytes"
	"context"
	"math"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/lab/replay"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// fleetOf gives each policy a capacity that depends on the number of prefill replicas. Above the capacity
// the share of good answers falls.
func fleetOf(p *Player, holds func(prefill int, form string, g string) float64) (plays *int) {
	plays = new(int)
	p.simulate = func(_ context.Context, at *replay.Play, form string) (*Played, error) {
		*plays++
		share := func(goal string) float64 {
			return 1 / (1 + math.Pow(at.Scale/holds(prefills(at.Cluster), form, goal), 8)/9)
		}
		return &Played{Figures: Figures{
			Policy: form, Usual: share("usual"), Tight: share("tight"), Measured: 100,
		}}, nil
	}
	return plays
}

// Each side is found in the shape with its largest capacity, for each goal, and only few shapes are tried.
func TestBestShapes(t *testing.T) {
	for _, tt := range []struct {
		name, shape string
		ours, rival int // number of prefill replicas in its best shape
	}{
		{"on the way up", "4P4D", 6, 5},
		{"on the way down", "12P4D", 3, 2},
		{"where nothing is split", "16D", 11, 9},
		{"where it stands", "2P2D", 2, 2},
		{"one pool is best for ours", "4P2D", 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := &Ground{Kind: "extract-bursts", Shape: tt.shape, Cache: 1, Step: 8192, Shares: []float64{0.7}}
			p, err := NewPlayer(g, Options{Seed: 1, Requests: 30})
			if err != nil {
				t.Fatal(err)
			}
			n := float64(replicas(tt.shape))
			plays := fleetOf(p, func(prefill int, form, goal string) float64 {
				best, most := float64(tt.rival), n
				if form == ours {
					best, most = float64(tt.ours), 1.1*n
				}
				if goal == "tight" {
					most /= 2
					best = max(1, best-1) // fewer prefill replicas
				}
				if tt.ours == 0 && form == ours && prefill > 0 {
					most /= 2
				}
				if prefill == 0 && (form != ours || tt.ours > 0) {
					return most / 2
				}
				return most / (1 + 0.1*math.Abs(float64(prefill)-best))
			})
			s, err := p.Shapes(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			count := replicas(tt.shape)
			if s.Usual.Ours.Shape != cluster.ShapeOf(tt.ours, count) ||
				s.Usual.Rival.Shape != cluster.ShapeOf(tt.rival, count) ||
				s.Usual.Unsplit.Shape != cluster.ShapeOf(0, count) {
				t.Errorf("at the usual goal %s", s.Usual.text())
			}
			if tt.ours > 0 && (s.Tight.Ours.Shape != cluster.ShapeOf(max(1, tt.ours-1), count) ||
				s.Tight.Rival.Shape != cluster.ShapeOf(max(1, tt.rival-1), count)) {
				t.Errorf("at the tight goal %s", s.Tight.text())
			}
			if r := s.Usual.Ratio(); tt.ours > 0 && math.Abs(r-1.1) > 0.03 {
				t.Errorf("capacities %s", s.Usual.text())
			}
			if *plays > 230 {
				t.Errorf("%d plays", *plays)
			}
			if err := p.AddSeedsTo(t.Context(), s, 3); err != nil {
				t.Fatal(err)
			}
			if len(s.Tight.Unsplit.Again) != 2 || math.Abs(s.Usual.Ours.Again[1]/s.Usual.Ours.Capacity-1) > 0.05 {
				t.Errorf("with further seeds: %+v", s.Usual.Ours)
			}
		})
	}
}

// A goal that even an idle fleet misses is reported, and costs no plays.
func TestGoalBeyondAnyFleet(t *testing.T) {
	p, err := NewPlayer(&Ground{Kind: "extract-bursts", Shape: "2P2D", Cache: 1, Step: 8192, Blind: true},
		Options{Requests: 30})
	if err != nil {
		t.Fatal(err)
	}
	fleetOf(p, func(_ int, _, goal string) float64 {
		if goal == "tight" {
			return 1e-9
		}
		return 10
	})
	s, err := p.Shapes(t.Context())
	if err != nil || s.Tight.Enough != 0 || s.Usual.Ours.Capacity <= 0 {
		t.Fatalf("%+v, %v", s, err)
	}
	var text, page bytes.Buffer
	all := []Shaped{*s}
	err = PrintShaped(&text, all)
	if err != nil || !strings.Contains(text.String(), "tight: not kept by an idle") {
		t.Errorf("%v\n%s", err, text.String())
	}
	err = Page(&page, nil, 0, all)
	if err != nil || !strings.Contains(page.String(), "not kept by an idle fleet") ||
		!strings.Contains(page.String(), "2P2D") {
		t.Errorf("%v\n%s", err, page.String())
	}
	sums := SumShaped(all)
	if len(sums) != 6 || sums[3].Never != 1 || sums[3].Least != 0 || sums[1].Grounds != 0 ||
		sums[2].Grounds != 1 {
		t.Errorf("%+v", sums)
	}
}
