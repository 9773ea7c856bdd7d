package grid

import (
	"bufio"
	"fmt"
	"io"
	"math"
)

// goals are the goals of shapes.
var goals = []string{"usual", "tight"}

// At is the match at one goal.
func (s *Shaped) At(goal string) *Match {
	if goal == "tight" {
		return &s.Tight
	}
	return &s.Usual
}

// Goals are the matches by goal.
func (s *Shaped) Goals() []*Match { return []*Match{&s.Usual, &s.Tight} }

// Ratio is Tandem's capacity divided by the better rival's, split or not, each side in its best shape: the
// median over the seeds.
func (m *Match) Ratio() float64 {
	xs := []float64{m.first()}
	for i := range min(len(m.Ours.Again), len(m.Rival.Again), len(m.Unsplit.Again)) {
		xs = append(xs, over(m.Ours.Again[i], max(m.Rival.Again[i], m.Unsplit.Again[i])))
	}
	return median(xs)
}

// KnownRatio is the capacity of the best oracle divided by the better rival's. known is false before any
// oracle has played.
func (m *Match) KnownRatio() (ratio float64, known bool) {
	if m.Known == nil {
		return 0, false
	}
	return over(m.Known.Capacity, max(m.Rival.Capacity, m.Unsplit.Capacity)), true
}

// Held is the capacity, the median over the seeds.
func (h *Holder) Held() float64 { return median(append([]float64{h.Capacity}, h.Again...)) }

// text is a holder in a few words.
func (h *Holder) text() string {
	if h.Capacity == 0 {
		return "none"
	}
	return fmt.Sprintf("%.3g %s %s", h.Held(), h.Shape, h.Policy)
}

// text is a match in a line.
func (m *Match) text() string {
	if m.Enough == 0 {
		return "not kept by an idle fleet"
	}
	text := fmt.Sprintf("%.2f x  ours %s  rival %s  not split %s", m.Ratio(), m.Ours.text(), m.Rival.text(),
		m.Unsplit.text())
	if x, known := m.KnownRatio(); known {
		text += fmt.Sprintf("  all known %s, %.2f x", m.Known.text(), x)
	}
	if m.Ratio() < 1 {
		text += " BEHIND"
	}
	return text
}

// ShapedSummary compares best shapes with the targets, at one goal.
type ShapedSummary struct {
	Name    string  `json:"name"`
	Grounds int     `json:"grounds"`
	Never   int     `json:"never"`  // fleets that hardly keep the goal when idle: not in the other figures
	Behind  int     `json:"behind"` // fleets in which Tandem holds less than the better rival
	Least   float64 `json:"least_capacity_ratio"`
	Mean    float64 `json:"mean_capacity_ratio"`
	Split   int     `json:"ours_splits"`  // fleets in which Tandem's best shape has two pools
	Others  int     `json:"rival_splits"` // fleets in which the rival that splits holds more than one pool
	Known   int     `json:"known"`        // fleets that oracles have played
	KnownBy float64 `json:"known_mean"`   // capacity of the best oracle over the better rival's, in Known
}

// SumShaped sums up all grounds, and separately the open and the blind kinds, at the usual and at the tight
// goal.
func SumShaped(all []Shaped) []ShapedSummary {
	var out []ShapedSummary
	for _, goal := range goals {
		for _, kinds := range []string{"all", "open", "blind"} {
			out = append(out, sumShaped(goal, kinds, all, func(s *Shaped) bool {
				return kinds == "all" || s.Blind == (kinds == "blind")
			}))
		}
	}
	return out
}

func sumShaped(goal, kinds string, all []Shaped, wanted func(*Shaped) bool) ShapedSummary {
	sum := ShapedSummary{Name: goal + ", " + kinds, Least: math.Inf(1)}
	played := 0
	for i := range all {
		s := &all[i]
		if !wanted(s) {
			continue
		}
		sum.Grounds++
		m := s.At(goal)
		if m.Enough == 0 {
			sum.Never++
			continue
		}
		played++
		x := m.Ratio()
		sum.Behind += one01(x < 1)
		sum.Least = min(sum.Least, x)
		sum.Mean += x
		sum.Split += one01(prefills(m.Ours.Shape) > 0)
		sum.Others += one01(m.Rival.Held() > m.Unsplit.Held())
		if x, known := m.KnownRatio(); known {
			sum.Known++
			sum.KnownBy += x
		}
	}
	sum.KnownBy /= float64(max(sum.Known, 1))
	if played == 0 {
		sum.Least = 0
		return sum
	}
	sum.Mean /= float64(played)
	return sum
}

// PrintShaped writes a line for each ground and goal, and the sums.
func PrintShaped(w io.Writer, all []Shaped) error {
	out := bufio.NewWriter(w)
	for i := range all {
		s := &all[i]
		mark := ""
		if s.Blind {
			mark = " blind"
		}
		for _, goal := range goals {
			fmt.Fprintf(out, "%-58s %s: %s%s\n", s.Name, goal, s.At(goal).text(), mark)
		}
	}
	for _, s := range SumShaped(all) {
		fmt.Fprintf(out, "best shapes, %-13s %3d grounds, %d of them beyond any fleet: "+
			"capacity over the best rival's: least %.2f, mean %.2f, behind in %d; "+
			"ours splits in %d, the better rival in %d; of %d that oracles played, the best of them: mean %.2f\n",
			s.Name+":", s.Grounds, s.Never, s.Least, s.Mean, s.Behind, s.Split, s.Others, s.Known, s.KnownBy)
	}
	return out.Flush()
}
