package grid

import (
	"fmt"
	"io"
	"strings"
)

// knownRows are what oracles are asked for beside the rival.
var knownRows = []row[Line]{
	rowOf("cells"),
	{"over a point fewer good answers than the rival", func(all []*Line) string {
		return fmt.Sprint(count(all, (*Line).Lost))
	}},
	rowOf("capacity over the best fair rival"),
	rowOf("fleets with more"),
	{"within the tight goal", func(all []*Line) string {
		return fmt.Sprintf("%.1f %%", average(all, tight(Ours)))
	}},
	{"cells ahead, behind by over a point there", func(all []*Line) string {
		more, less := aheadBy(all, tight(Rival))
		return fmt.Sprintf("%d, %d", more, less)
	}},
	{"answers with a gap above 0.2 s", func(all []*Line) string {
		if mixed(all) {
			return ""
		}
		return fmt.Sprintf("%.1f %%", average(all, halting(Ours)))
	}},
	{"first token later by over 5 % than the rival's, sooner, of", func(all []*Line) string {
		if mixed(all) {
			return ""
		}
		met := only(all, (*Line).bothMet)
		return fmt.Sprintf("%d, %d, %d", count(met, (*Line).Late), count(met, (*Line).sooner), len(met))
	}},
}

// bestOracle stands for whichever oracle has most, for each figure another one.
const bestOracle = "the best of the three"

// mixed reports whether that is what stands in our place: only what is better where it is larger is known.
func mixed(all []*Line) bool { return len(all) > 0 && all[0].Ours.Policy == bestOracle }

// rowOf is the row whose name begins so.
func rowOf(name string) row[Line] {
	for _, r := range rows {
		if strings.HasPrefix(r.name, name) {
			return r
		}
	}
	panic("no row " + name)
}

// PrintKnownTable writes what oracles come to beside ours, in the cells that they have played, all with the
// first draw. The last column takes the best of them in each cell, for each figure that is better where it is
// larger.
func PrintKnownTable(w io.Writer, lines []Line) error {
	heads := []string{"", "ours"}
	columns := make([][]*Line, 2+len(Oracles))
	for i := range lines {
		l := &lines[i]
		if len(l.Known) < len(Oracles) {
			continue
		}
		columns[0] = append(columns[0], l.with(&Known{l.Ours, l.Capacity.Ours}))
		for k := range Oracles {
			columns[1+k] = append(columns[1+k], l.with(&l.Known[k]))
		}
		best := Known{Capacity: l.known(func(k *Known) float64 { return k.Capacity })}
		best.Policy = bestOracle
		best.Usual, best.Tight = l.KnownGood(), l.KnownTight()
		columns[1+len(Oracles)] = append(columns[1+len(Oracles)], l.with(&best))
	}
	if len(columns[0]) == 0 {
		return nil
	}
	return printColumns(w, append(append(heads, Oracles...), bestOracle), columns, knownRows)
}

// with is the first draw of a cell with somebody else in our place.
func (l *Line) with(k *Known) *Line {
	other := *l
	other.Again = nil
	other.Ours, other.Capacity.Ours = k.Figures, k.Capacity
	return &other
}

// shapedRows are what is told of best shapes at one goal.
func shapedRows(goal string) []row[Shaped] {
	ratios := func(all []*Shaped) (xs []float64) {
		for _, s := range held(all, goal) {
			xs = append(xs, s.At(goal).Ratio())
		}
		return xs
	}
	return []row[Shaped]{
		{"fleets", func(all []*Shaped) string { return fmt.Sprint(len(held(all, goal))) }},
		{
			"capacity over the better of both: least; median; mean of those below 3; less in",
			func(all []*Shaped) string { return spreadBehind(ratios(all)) },
		},
		{"more by over 3 %, within 3 %, less by over 3 %", func(all []*Shaped) string {
			return threeWays(ratios(all))
		}},
		{"ours is best in one pool; the better rival is", func(all []*Shaped) string {
			return fmt.Sprintf("%d; %d",
				count(held(all, goal), func(s *Shaped) bool { return prefills(s.At(goal).Ours.Shape) == 0 }),
				count(held(all, goal), func(s *Shaped) bool {
					return s.At(goal).Unsplit.Held() >= s.At(goal).Rival.Held()
				}))
		}},
		{"over one pool: median", func(all []*Shaped) string {
			var xs []float64
			for _, s := range held(all, goal) {
				xs = append(xs, over(s.At(goal).Ours.Held(), s.At(goal).Unsplit.Held()))
			}
			return fmt.Sprintf("%.2f", median(xs))
		}},
		{
			"the best oracle over the same: least; median; mean of those below 3; less in; ours there",
			func(all []*Shaped) string { return knownShapes(held(all, goal), goal) },
		},
	}
}

// held are those whose goal an idle fleet keeps.
func held(all []*Shaped, goal string) []*Shaped {
	return only(all, func(s *Shaped) bool { return s.At(goal).Enough > 0 })
}

func knownShapes(all []*Shaped, goal string) string {
	var known, ours []float64
	for _, s := range all {
		if x, played := s.At(goal).KnownRatio(); played {
			known, ours = append(known, x), append(ours, s.At(goal).Ratio())
		}
	}
	if len(known) == 0 {
		return ""
	}
	return spreadBehind(known) + "; " + spread(ours)
}

// PrintShapedTables writes what best shapes come to, a table for each goal.
func PrintShapedTables(w io.Writer, shaped []Shaped) error {
	for _, goal := range goals {
		err := printTable(w, goal+" goal", pointers(shaped), shapedRows(goal),
			func(s *Shaped) bool { return s.Blind })
		if err != nil {
			return err
		}
	}
	return nil
}
