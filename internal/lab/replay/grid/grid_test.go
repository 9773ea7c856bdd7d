package grid

import (
	"bytes"
	"context"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// The grid has at least a hundred cells. Half of them are blind, no two are equal, and the same seed gives
// the same grid.
func TestDraw(t *testing.T) {
	all := Draw(1, 2)
	if !reflect.DeepEqual(all, Draw(1, 2)) || reflect.DeepEqual(all, Draw(2, 2)) {
		t.Error("the grid does not follow its seed")
	}
	seen := map[string]bool{}
	shapesSeen := map[string]int{}
	blind := 0
	for i, g := range all {
		if i > 0 && replicas(g.Shape) < replicas(all[i-1].Shape) {
			t.Errorf("%s comes after the larger %s", g.Name(), all[i-1].Name())
		}
		if len(g.Shares) != 2 || g.Shares[0] >= g.Shares[1] || g.Shares[0] != gapShare && g.Shares[1] != gapShare {
			t.Errorf("%s: shares %v", g.Name(), g.Shares)
		}
		if _, err := cluster.Shape(g.Shape); err != nil {
			t.Error(err)
		}
		shapesSeen[g.Shape]++
		for _, share := range g.Shares {
			if seen[g.Cell(share)] {
				t.Errorf("%s is listed twice", g.Cell(share))
			}
			seen[g.Cell(share)] = true
			if g.Blind {
				blind++
			}
		}
	}
	if len(seen) < 100 || 2*blind != len(seen) || len(shapesSeen) != len(shapes) {
		t.Errorf("%d cells, %d of them blind, in %d shapes", len(seen), blind, len(shapesSeen))
	}
}

func TestGroundNames(t *testing.T) {
	g := Ground{Kind: "agents", Shape: "12P4D", Cache: 4, Step: 1024, Shares: []float64{0.5, 0.7}}
	if g.Cell(0.5) != "agents/12P4D/cache4/step1024/0.5" || unsplit(g.Shape) != "16D" || unsplit("8D") != "8D" {
		t.Errorf("%s, in one pool %s", g.Cell(0.5), unsplit(g.Shape))
	}
	want := []string{
		"agents/12P4D/cache4/step1024", "agents/12P4D/cache4/step1024/0.5", "agents/12P4D/cache4/step1024/0.7",
	}
	if got := g.Names(); !slices.Equal(got, want) {
		t.Errorf("its names are %v", got)
	}
}

// line is a cell with the good answers and capacities of Tandem and of the rivals.
func line(share, ours, rival, unsplit float64, blind bool) Line {
	return Line{
		Cell: "c", Share: share, Blind: blind, Enough: 0.9, Bound: 10,
		Capacity: Capacities{Ours: ours * 10, Rival: rival * 10, Unsplit: unsplit * 10},
		Ours:     Figures{Usual: ours, TTFT: 1.1, Halting: 0.4, Stuck: 0.1}, Rival: Figures{Usual: rival, TTFT: 1},
		Unsplit: Figures{Usual: unsplit, Policy: "<lmetric>"},
	}
}

func TestSumByHand(t *testing.T) {
	lines := []Line{
		// half a point less than the rival, two points less than the unsplit fleet, and later
		line(0.7, 0.95, 0.955, 0.97, false),
		line(0.95, 0.8, 0.9, 0.7, false), // lost
		line(0.7, 0.9, 0.6, 0.6, true),
	}
	got := Sum(lines)
	all, blind := got[0], got[2]
	if all.Cells != 3 || all.Lost != 1 || all.LostUnsplit != 1 || all.Late != 1 || blind.Cells != 1 ||
		blind.Lost != 0 {
		t.Errorf("%+v", got)
	}
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
	if !near(all.Least, 0.95/0.955) || !near(all.Mean, (0.95/0.955+1.5)/2) ||
		!near(all.LeastUnsplit, 0.95/0.97) ||
		!near(all.Halting, 0.4) || !near(all.OfBound, 0.925) {
		t.Errorf("%+v", all)
	}
	if none := Sum(nil)[0]; none.Least != 0 || none.Mean != 0 {
		t.Errorf("the sum of no lines: %+v", none)
	}
	var text, html bytes.Buffer
	if err := Print(&text, lines); err != nil || strings.Count(text.String(), "LOST") != 2 ||
		!strings.Contains(text.String(), "1 lost, 0 of them surely, 1 to not splitting, 1 later") {
		t.Errorf("%v\n%s", err, text.String())
	}
	if err := Page(&html, lines, 112, nil); err != nil {
		t.Fatal(err)
	}
	page := html.String()
	if strings.Count(page, `class="blind"`) != 1 || strings.Contains(page, "<lmetric>") ||
		!strings.Contains(page, "3 of 112 cells") || strings.Contains(page, "http") {
		t.Errorf("%s", page)
	}
}

// A truncated last line is ignored.
func TestReadWhatWasWritten(t *testing.T) {
	var b bytes.Buffer
	want := line(0.7, 0.9, 0.8, 0.7, true)
	if err := Write(&b, []Line{want}); err != nil {
		t.Fatal(err)
	}
	b.WriteString(`{"cell":"x","ki`)
	got, err := Read[Line](&b)
	if err != nil || len(got) != 1 || !reflect.DeepEqual(got[0], want) {
		t.Errorf("%+v, %v", got, err)
	}
}

// small returns a small ground that exists, and a player for it.
func small(t *testing.T, told *[]string) (*Player, *Ground) {
	t.Helper()
	g := &Ground{Kind: "extract-bursts", Shape: "1P1D", Cache: 1, Step: 8192, Shares: []float64{0.7}}
	p, err := NewPlayer(g, Options{
		Seed: 1, Requests: 30, Shortest: 10 * time.Second, Rules: []string{"+local:k=2:pause=0.03"},
		Progress: func(s string) { *told = append(*told, s) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return p, g
}

// The player finds the capacity of a small ground. Its rivals may prefill on decode replicas, and every
// cell is judged at the same load.
func TestPlayAGround(t *testing.T) {
	var told []string
	p, g := small(t, &told)
	lines, err := p.Cells(t.Context())
	if err != nil || len(lines) != 1 {
		t.Fatalf("%+v, %v", lines, err)
	}
	l := lines[0]
	if l.Cell != g.Cell(0.7) || l.Ours.Policy != ours || l.Rival.Policy == "" || l.Unsplit.Policy == "" ||
		l.Ours.Measured < 10 || l.Ours.Measured != l.Rival.Measured {
		t.Errorf("%+v", l)
	}
	if c := l.Capacity; math.Abs(l.Load-0.7*c.Rival) > 1e-9 || c.Ours <= 0 || c.Unsplit <= 0 ||
		l.Bound <= 0 {
		t.Errorf("%+v, load %v, bound %v", c, l.Load, l.Bound)
	}
	if len(told) < 20 || len(told) > 70 || !strings.Contains(strings.Join(told, "\n"), "+local:k=2:pause=0.03") {
		t.Errorf("%d plays, want 20 to 70 and some with the rule", len(told))
	}
	asked, good := 0, 0
	for i, n := range l.Windows.Ours.Asked {
		asked += n
		good += l.Windows.Ours.Usual[i]
	}
	if asked != l.Ours.Measured || math.Abs(float64(good)/float64(asked)-l.Ours.Usual) > 1e-9 {
		t.Errorf("windows have %d good answers of %d, the play %v of %d",
			good, asked, l.Ours.Usual, l.Ours.Measured)
	}
	if err := p.AddSeeds(t.Context(), &l, 3); err != nil {
		t.Fatal(err)
	}
	if l.Plays() != 3 || l.Again[0].Ours.TTFT == l.Ours.TTFT || l.Again[1].Ours.TTFT == l.Again[0].Ours.TTFT ||
		l.Again[1].Rival.Policy != l.Rival.Policy || l.Again[1].Capacity.Rival <= 0 {
		t.Errorf("with further seeds: %+v", l)
	}
	before := len(told)
	if err := p.AddSeeds(t.Context(), &l, 3); err != nil || len(told) != before {
		t.Errorf("the same seeds were played again: %v", told[before:])
	}
	s, err := p.Shapes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s.Name != "extract-bursts/2 replicas/cache1/step8192" || s.Usual.Ours.Capacity != l.Capacity.Ours ||
		s.Usual.Rival.Capacity != l.Capacity.Rival || s.Usual.Unsplit.Capacity != l.Capacity.Unsplit ||
		s.Tight.Enough <= 0 || s.Tight.Rival.Capacity > s.Usual.Rival.Capacity {
		t.Errorf("the only shape has %+v, its cell had %+v", s, l.Capacity)
	}
}

// When a policy appears with two weights, the second entry does not displace another policy.
func TestContenders(t *testing.T) {
	const one, other = "dynamo:credit=1.5", "dynamo:credit=3"
	for _, c := range []struct{ forms, want []string }{
		{[]string{one, one + "+local:k=2", "lmetric", other}, []string{one, "lmetric"}},
		{
			[]string{one + "+local:k=2", other, one, "kv-aware+local:k=2", "lmetric"},
			[]string{one, other, "kv-aware"},
		},
		{[]string{one, other}, []string{one, other}},
	} {
		if got := contenders(c.forms, 2); !slices.Equal(got, c.want) {
			t.Errorf("of %v: %v, want %v", c.forms, got, c.want)
		}
	}
}

// The policy with twice the capacity is the rival, even if all policies have only good answers at the load
// of the tuning, and even if its first tokens come later. A policy whose capacity is no larger with the
// deciding seed is not the rival.
func TestTheRivalIsWhoHoldsTheMost(t *testing.T) {
	var told []string
	p, g := small(t, &told)
	p.usual.enough, p.limit = 0.9, 1
	holds := map[string]float64{"kv-aware": 1, "lmetric": 2, "llm-d": 3, "dynamo": 0.5}
	p.simulate = func(_ context.Context, play *replay.Play, form string) (*Played, error) {
		most := holds[form]
		if form == "llm-d" && play.Seed == p.base.Seed {
			most = 0.9
		}
		return &Played{Figures: Figures{Policy: form, Usual: min(1, max(0, 1.9*most-play.Scale))}}, nil
	}
	c := contest{shape: g.Shape, forms: []string{"kv-aware"}, form: "kv-aware", capacity: 1}
	if err := p.outdo(t.Context(), &c, []string{"dynamo", "kv-aware", "lmetric", "llm-d"}); err != nil {
		t.Fatal(err)
	}
	judged := []string{"kv-aware", "lmetric", "llm-d"}
	if c.form != "lmetric" || math.Abs(c.capacity-2.9) > 0.2 || !slices.Equal(c.forms, judged) {
		t.Errorf("%+v", c)
	}
}

// With every further seed, the rival's capacity is measured for the policy that had the largest capacity
// with the first seed. Another policy may be the best at the load of the cell.
func TestFurtherSeedsAskWhoHoldsTheMost(t *testing.T) {
	var told []string
	p, g := small(t, &told)
	played := map[string]int{}
	p.simulate = func(_ context.Context, play *replay.Play, form string) (*Played, error) {
		played[form]++
		return &Played{Figures: Figures{Policy: form, Usual: max(0, 2-play.Scale)}}, nil
	}
	l := Line{
		Shape: g.Shape, Load: 0.5, Enough: 0.9,
		Rival: Figures{Policy: "lmetric"}, Unsplit: Figures{Policy: "llm-d"},
		Capacity: Capacities{Ours: 1, Rival: 1, Unsplit: 1, RivalForm: "kv-aware", UnsplitForm: "round-robin"},
	}
	if err := p.AddSeeds(t.Context(), &l, 2); err != nil {
		t.Fatal(err)
	}
	if played["lmetric"] != 1 || played["llm-d"] != 1 || played["kv-aware"] < 2 || played["round-robin"] < 2 {
		t.Errorf("played %v, want one play of the judged policy and a search for the policy with the largest "+
			"capacity", played)
	}
	if c := l.Again[0].Capacity; math.Abs(c.Rival-1.1) > 0.05 || math.Abs(c.Unsplit-1.1) > 0.05 {
		t.Errorf("with the second seed: %+v", c)
	}
}

func TestNoSuchGround(t *testing.T) {
	if _, err := NewPlayer(&Ground{Kind: "x"}, Options{}); err == nil {
		t.Error("an unknown kind was played")
	}
	if _, err := NewPlayer(&Ground{Kind: "azure-28", Shape: "1P1D"}, Options{Traces: t.TempDir()}); err == nil {
		t.Error("a kind without its file was played")
	}
}
