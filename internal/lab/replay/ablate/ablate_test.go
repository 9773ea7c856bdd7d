package ablate

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay/grid"
	"github.com/tandem-router/tandem/internal/lab/replay/policies"
)

// The panel has at least thirty cells, and half of them have blind kinds of traffic. The lab can make
// every cell and every policy.
func TestPanel(t *testing.T) {
	var blind, slow, misstated int
	names := map[string]bool{}
	all := Panel()
	for i := range all {
		c := &all[i]
		names[c.Name()] = true
		if c.Blind() {
			blind++
		}
		if c.Link < 10 {
			slow++
		}
		if c.Misstate != "" {
			misstated++
		}
		p, err := c.play(&Options{Traces: "../../../../examples/traces", For: time.Minute})
		if err != nil && !strings.Contains(err.Error(), "not all files ship") {
			t.Fatal(err)
		}
		if _, err := p.Fleet(); err != nil {
			t.Errorf("%s: %v", c.Name(), err)
		}
	}
	if len(names) != len(all) || len(all) < 30 || 2*blind < len(all)-2 || slow < 5 || misstated < 4 {
		t.Errorf("%d cells, %d names, %d blind, %d with slow links, %d mis-stated", len(all), len(names), blind,
			slow, misstated)
	}
	for _, m := range Mechanisms() {
		if _, err := policies.Params(m.Policy); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
	if _, unknown := Named([]string{"pieces", "luck"}); unknown != "luck" {
		t.Errorf("unknown is %q", unknown)
	}
}

// A short panel: when prompts are not cut into pieces, the streams of this fleet stand still for longer. A
// cell that cannot be played is named in the result.
func TestShortPanel(t *testing.T) {
	wanted, _ := Named([]string{"pieces"})
	var shares []float64
	x, err := Run(context.Background(), Options{
		Cells: []Cell{
			{grid.FleetOf("answers300-long-some-bursts", "2P2D", 1, 8192, 4, 1), Special{}},
			{grid.FleetOf("azure-chat", "2P2D", 1, 8192, 40, 2), Special{}},
		},
		Mechanisms: wanted, Seeds: 3, For: 20 * time.Second,
		Progress: func(_ string, share float64) { shares = append(shares, share) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(x.NotPlayed) != 1 || len(x.Reference) != 1 || len(x.Effects) != 1 {
		t.Fatalf("got %+v", x)
	}
	if e := x.Effects[0]; !(e.Tight < -x.Noise.Tight) || e.Mechanism != "pieces" || len(e.Cells) != 1 {
		t.Errorf("without pieces %+v, noise %+v", e, x.Noise)
	}
	if len(shares) != 6 || shares[5] != 1 {
		t.Errorf("progress %v", shares)
	}
	var table strings.Builder
	if err := x.Print(&table); err != nil || !strings.Contains(table.String(), "| pieces | ") {
		t.Errorf("%v: %s", err, table.String())
	}
}

// The effect is the mean change over the cells. The noise is the difference between one seed and the
// others.
func TestEffectAndNoise(t *testing.T) {
	cells := []Cell{
		{grid.FleetOf("azure-chat", "2P2D", 1, 8192, 40, 2), Special{}},
		{grid.FleetOf("azure-28", "2P2D", 1, 8192, 40, 2), Special{}},
	}
	whole := []Figures{{0.9, 0.5, 1}, {1, 0.5, 2}}
	e := effect(cells, whole, []Figures{{0.8, 0.6, 2}, {0.96, 0.5, 4}})
	if math.Abs(e.Good+7) > 1e-9 || math.Abs(e.Blind+4) > 1e-9 || math.Abs(e.Tight-5) > 1e-9 ||
		math.Abs(e.TTFT-2) > 1e-9 || math.Abs(e.Worst.Points+10) > 1e-9 ||
		!strings.HasPrefix(e.Worst.Cell, "azure-chat") {
		t.Errorf("got %+v", e)
	}
	n := noise(cells, [][]Figures{{{0.9, 0.5, 1}, {0.8, 0.5, 1}}, {{1, 0.5, 2}, {1, 0.5, 2}}})
	if math.Abs(n.Good-5) > 1e-9 || n.Blind != 0 || n.TTFT != 1 {
		t.Errorf("noise %+v", n)
	}
}
