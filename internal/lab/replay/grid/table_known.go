package grid

import (
	"fmt"
	"io"
)

// knownRows are what oracles are asked for beside the rival.
var knownRows = []row[Line]{
	rowCells,
	{"over a point fewer good answers than the rival", func(all []*Line) string {
		return fmt.Sprint(count(all, (*Line).Lost))
	}},
	rowRatio, rowThreeWays,
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
	{"first token later by over 5 %, sooner, of cells in which both have enough", func(all []*Line) string {
		if mixed(all) {
			return ""
		}
		met := only(all, (*Line).bothMet)
		return fmt.Sprintf("%d, %d, %d", count(met, (*Line).Late), count(met, (*Line).sooner), len(met))
	}},
}

// bestOracle is the name of whichever oracle has most, for each figure another one.
const bestOracle = "the best of them"

// mixed reports whether these cells have bestOracle in our place. bestOracle has only figures that are
// better when larger.
func mixed(all []*Line) bool { return len(all) > 0 && all[0].Ours.Policy == bestOracle }

// PrintKnownTable writes the figures of oracles beside ours, in the cells that they have played, all with
// the first draw. The last column takes the best oracle in each cell, for each figure that is better when
// larger.
func PrintKnownTable(w io.Writer, lines []Line) error {
	heads := []string{"", "ours"}
	columns := make([][]*Line, 2+len(Oracles))
	for i := range lines {
		l := &lines[i]
		if len(l.Known) < len(Oracles) {
			continue
		}
		columns[0] = append(columns[0], l.first())
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

// with gives the first draw of a cell, with another policy in our place.
func (l *Line) with(k *Known) *Line {
	other := l.first()
	other.Ours, other.Capacity.Ours = k.Figures, k.Capacity
	return other
}

// first gives a cell with its first draw alone.
func (l *Line) first() *Line {
	one := *l
	one.Again = nil
	return &one
}
