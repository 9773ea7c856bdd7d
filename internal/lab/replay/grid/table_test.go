package grid

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// tabled returns cells whose table can be calculated by hand.
func tabled() []Line {
	even := Line{ // within 3 %, late; the rival meets the tight goal
		Share: gapShare, Step: 1024, Shape: "2P2D", Enough: 0.9, Bound: 10,
		Capacity: Capacities{Ours: 1, Rival: 0.98, Unsplit: 2},
		Ours:     Figures{Usual: 0.95, Tight: 0.9, TTFT: 1.2, Halting: 0.01},
		Rival:    Figures{Usual: 0.95, Tight: 0.95, TTFT: 1, Halting: 0.2, Stuck: 0.1},
		Unsplit:  Figures{Usual: 0.95, Tight: 0.8, TTFT: 1},
	}
	many := even // several times the capacity
	many.Capacity = Capacities{Ours: 4, Rival: 1, Unsplit: 1}
	many.Ours.Tight, many.Ours.TTFT = 1, 0.9

	ahead := even
	ahead.Step, ahead.Shape = 8192, "4D"
	ahead.Capacity = Capacities{Ours: 1.5, Rival: 1, Unsplit: 1.2}
	ahead.Ours.Tight, ahead.Rival.Tight = 0.955, 0.5
	ahead.Ours.TTFT = 1.04

	lost := even
	lost.Share, lost.Blind = 0.95, true // its capacities are copied from another cell of its fleet
	lost.Ours.Usual = 0.8

	endless := even             // no tried load is too high
	endless.Unsplit.Usual = 0.4 // did not keep up
	endless.Blind, endless.Capacity = true, Capacities{Ours: 10_000, Rival: 1, Unsplit: 1}
	return []Line{even, many, ahead, lost, endless}
}

func TestTableByHand(t *testing.T) {
	var text bytes.Buffer
	if err := PrintTable(&text, tabled()); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"|  | all | open | blind | all that split |",
		"|---|---|---|---|---|",
		"| 5 | 3 | 2 | 4 |",
		"| 1; 0 | 0; 0 | 1; 0 | 1; 0 |",
		"| 1 | 0 | 1 | 1 |",
		"| 1.02; 1.50; 2.17 | 1.02; 1.50; 2.17 |  | 1.02; 2.51; 2.51 |",
		"| 2, 1, 0 | 2, 1, 0 | 0, 0, 0 | 1, 1, 0 |",
		"| 0.50; 1.25; 1.92; 1 of 3 | 0.50; 1.25; 1.92; 1 of 3 |  | 0.50; 2.25; 2.25; 1 of 2 |",
		"| 0.50; 1.25; 1.92; 1 of 3 | 0.50; 1.25; 1.92; 1 of 3 |  | 0.50; 2.25; 2.25; 1 of 2 |",
		"| 0.10; 0.15; 0.22 | 0.10; 0.15; 0.22 |  | 0.10; 0.25; 0.25 |",
		strings.Repeat("| 1.0, 0.00 %; 20.0, 10.00 % ", 4) + "|",
		"| 93.1; 86.0; 80.0; 92.0 % | 95.2; 80.0; 80.0; 90.0 % " +
			"| 90.0; 95.0; 80.0; 95.0 % | 92.5; 95.0; 80.0; 95.0 % |",
		"| 92.5; 95.0; 80.0; 95.0 % | 95.0; 95.0; 80.0; 95.0 % " +
			"| 90.0; 95.0; 80.0; 95.0 % | 92.5; 95.0; 80.0; 95.0 % |",
		"|  |  |  |  |",
		"| 95.5; 50.0; 80.0; 80.0 % | 95.5; 50.0; 80.0; 80.0 % |  |  |",
		"| 2, 3; 2, 3 | 2, 1; 2, 1 | 0, 2; 0, 2 | 1, 3; 1, 3 |",
		"| 2, 2; 1; 4 | 1, 1; 1; 3 | 1, 1; 0; 1 | 2, 2; 1; 3 |",
		"| 90.0; 95.0 % | 90.0; 95.0 % | 90.0; 95.0 % | 90.0; 95.0 % |",
		"| 0, 0, 1; 5 | 0, 0, 0; 3 | 0, 0, 1; 2 | 0, 0, 1; 4 |",
	}
	got := strings.Split(strings.TrimSpace(text.String()), "\n")
	if len(got) != len(want) {
		t.Fatalf("%d lines, want %d\n%s", len(got), len(want), text.String())
	}
	for i, w := range want {
		if !strings.HasSuffix(got[i], w) {
			t.Errorf("%q, want it to end with %q", got[i], w)
		}
	}
}

func TestTableOfOracles(t *testing.T) {
	lines := tabled()[:2]
	known := Known{Figures: Figures{Usual: 0.9, Tight: 0.5, TTFT: 0.5}, Capacity: 0.49} // loses, but is earlier
	lines[0].Known = slices.Repeat([]Known{known}, len(Oracles))
	lines[0].Known[2].Usual = 0.99
	var text bytes.Buffer
	if err := PrintKnownTable(&text, lines); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"|  | ours | oracle-pieces | oracle-terms | oracle | the best of them |\n",
		"| cells | 1 | 1 | 1 | 1 | 1 |\n",
		"| 0 | 1 | 1 | 0 | 0 |\n",
		"| 1.02; 1.02; 1.02 | 0.50; 0.50; 0.50 | ",
		"| 90.0 % | 50.0 % | 50.0 % | 50.0 % | 50.0 % |\n",
		"| 1, 0, 1 | 0, 1, 1 | 0, 1, 1 | 0, 1, 1 |  |\n", "| 1.0 % | 0.0 % | 0.0 % | 0.0 % |  |\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	text.Reset()
	if err := PrintKnownTable(&text, lines[1:]); err != nil || text.Len() > 0 {
		t.Errorf("%v: %q, want no table for cells that no oracle has played", err, text.String())
	}
}

func TestTableOfShapes(t *testing.T) {
	match := func(ours, rival, unsplit, known float64) Match {
		return Match{
			Enough: 0.9, Ours: Holder{Capacity: ours, Shape: "1P3D"}, Rival: Holder{Capacity: rival, Shape: "1P3D"},
			Unsplit: Holder{Capacity: unsplit, Shape: "4D"}, Known: &Holder{Capacity: known},
		}
	}
	a, b := Shaped{Usual: match(2, 1, 1.6, 2.4)}, Shaped{Usual: match(1.5, 2, 1, 1.5), Blind: true}
	b.Usual.Ours.Shape, b.Usual.Known = "4D", nil
	var text bytes.Buffer
	if err := PrintShapedTables(&text, []Shaped{a, b}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| usual goal | all | open | blind |\n", "| tight goal | all | open | blind |\n",
		"| fleets | 2 | 1 | 1 |\n", "| fleets | 0 | 0 | 0 |\n",
		"| 0.75; 1.00; 1.00; 1 of 2 | 1.25; 1.25; 1.25; 0 of 1 | 0.75; 0.75; 0.75; 1 of 1 |\n",
		"| 1, 0, 1 | 1, 0, 0 | 0, 0, 1 |\n", "| 1; 1 | 0; 1 | 1; 0 |\n",
		"| 1.25; 1.38; 1.38; 0 of 2 | 1.25; 1.25; 1.25; 0 of 1 | 1.50; ",
		"| 1: 1.25; 1.25; 1.25; 1.50; 1.50; 1.50 | 1: 1.25; ",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}
