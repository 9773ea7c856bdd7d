package classes

import (
	"bytes"
	"math"
	"strings"
	"testing"
)

// Where tokens are the bottleneck, a fleet that knows the goals holds a quarter more load, and answers more
// requests well at a quarter more load. The table says both.
func TestGoalsHoldMoreLoad(t *testing.T) {
	x, err := Run(t.Context(), Options{
		Kinds: []string{"answers300-short-most-bursts"}, Cluster: "2P4D", Profile: "70b", Seeds: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	c := x.Cells[0]
	if c.Ours < more || c.With[0] < c.Without[0]+0.05 || c.With[1] < c.Without[1]+0.1 || c.With[2] < 0.99 {
		t.Errorf("%+v", c)
	}
	var table bytes.Buffer
	if err := x.Print(&table); err != nil || !strings.Contains(table.String(), "open kinds") ||
		strings.Contains(table.String(), "blind kinds") {
		t.Errorf("%v\n%s", err, table.String())
	}
}

// A wrong name is found before the kinds in front of it are played.
func TestWrongKind(t *testing.T) {
	played := false
	x, err := Run(t.Context(), Options{
		Kinds: []string{"answers300-short-most-bursts", "answer"}, Cluster: "2P4D", Profile: "70b", Seeds: 1,
		Progress: func(string, float64) { played = true },
	})
	if err == nil || played || len(x.Cells) > 0 {
		t.Errorf("%v, played: %v", err, played)
	}
}

// The interval is over kinds: seeds of one kind are no evidence for others.
func TestMean(t *testing.T) {
	cells := []Cell{{Kind: "a", Ours: 2}, {Kind: "a", Ours: 2}, {Kind: "b", Ours: 0.5}, {Kind: "b", Ours: 0.5}}
	e := mean(cells, func(c *Cell) float64 { return c.Ours })
	if math.Abs(e.Mean-1) > 1e-9 || e.Low != 0.5 || math.Abs(e.High-2) > 1e-9 {
		t.Errorf("%v", e)
	}
}
