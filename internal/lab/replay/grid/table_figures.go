package grid

import (
	"fmt"
	"io"
	"slices"
)

const (
	// noticeable is the ratio from which two capacities count as different.
	noticeable = 1.03
	// beyond is a multiple of the engines' bound that no policy can hold. If a capacity is larger, plays ended
	// before any queue had grown, and the search ended because it had no more steps.
	beyond = 100
)

// limited reports whether the first draw shows the capacity of a side: some load was too much for it.
func (l *Line) limited(s Side) bool {
	return [...]float64{
		Ours: l.Capacity.Ours, Rival: l.Capacity.Rival, Unsplit: l.Capacity.Unsplit,
	}[s] < beyond*l.Bound
}

// ratioBoth is Tandem's capacity divided by the larger of the rival's and one pool's, by medians over the
// seeds.
func (l *Line) ratioBoth() float64 { return min(l.Ratio(), l.RatioUnsplit()) }

// ofBound is Tandem's capacity divided by the load that no policy can hold, by the first draw.
func (l *Line) ofBound() float64 { return l.Capacity.Ours / l.Bound }

// ratios are the ratios of fleets in which ours and the others are limited, each by its cell with gapShare.
func ratios(all []*Line, of func(*Line) float64, others ...Side) (xs []float64) {
	for _, l := range all {
		endless := slices.ContainsFunc(append(others, Ours), func(s Side) bool { return !l.limited(s) })
		if l.Share == gapShare && !endless {
			xs = append(xs, of(l))
		}
	}
	return xs
}

// spread returns the least, the median and the mean of ratios. If the other side holds nothing, the ratio
// means nothing and is left out of the mean.
func spread(xs []float64) string {
	if len(xs) == 0 {
		return ""
	}
	told := slices.DeleteFunc(slices.Clone(xs), func(x float64) bool { return x == mostOver })
	if len(told) == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f; %.2f; %.2f", slices.Min(xs), median(xs), mean(told))
}

// spreadBehind also returns the number of cells in which Tandem holds less, however little.
func spreadBehind(xs []float64) string {
	text := spread(xs)
	if text == "" {
		return ""
	}
	_, less := moreAndLess(xs, 1)
	return fmt.Sprintf("%s; %d of %d", text, less, len(xs))
}

// threeWays counts the fleets in which ours holds noticeably more, about as much, and noticeably less.
func threeWays(xs []float64) string {
	more, less := moreAndLess(xs, noticeable)
	return fmt.Sprintf("%d, %d, %d", more, len(xs)-more-less, less)
}

// moreAndLess counts the ratios above by, and the ratios below one over by.
func moreAndLess(xs []float64, by float64) (more, less int) {
	for _, x := range xs {
		more += one01(x > by)
		less += one01(x < 1/by)
	}
	return more, less
}

func only[T any](all []*T, wanted func(*T) bool) (some []*T) {
	for _, x := range all {
		if wanted(x) {
			some = append(some, x)
		}
	}
	return some
}

func count[T any](all []*T, wanted func(*T) bool) int { return len(only(all, wanted)) }

// average is 0 without values.
func average(all []*Line, of func(*Line) float64) float64 {
	sum := 0.0
	for _, l := range all {
		sum += of(l)
	}
	return sum / float64(max(len(all), 1))
}

// knownRows are the rows of the table that compares oracles with the rival.
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

// bestOracle is the name of the column with the best oracle, which may be another oracle for each figure.
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

// with returns the first draw of a cell, with another policy instead of Tandem.
func (l *Line) with(k *Known) *Line {
	other := l.first()
	other.Ours, other.Capacity.Ours = k.Figures, k.Capacity
	return other
}

// first returns a cell with its first draw alone.
func (l *Line) first() *Line {
	one := *l
	one.Again = nil
	return &one
}
