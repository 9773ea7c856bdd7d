package grid

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

const (
	// manyTimes and more are left out of the means of capacities over another's: where few decode replicas
	// were drawn one pool of as many holds many times what splits there, which a mean would tell of alone.
	manyTimes = 3
	// by how much a capacity differs before it is told apart.
	noticeable = 1.03
	// A fleet in which ours or the rival holds so many times what engines can is one whose plays end before
	// any queue has grown: their capacities are not known there. Where not splitting alone does, it is ahead.
	beyond = 100
	// evenEnough is the share of answers within the tight goal with which a rival keeps it.
	evenEnough = 0.9
)

// row is one of a table: what it says of some cells, or of some fleets' best shapes.
type row[T any] struct {
	name string
	text func(some []*T) string
}

// rows are those of docs/results.md, in its order.
var rows = []row[Line]{
	{"cells", func(all []*Line) string { return fmt.Sprint(len(all)) }},
	{"over a point fewer good answers than a fair rival in the same fleet; surely", func(all []*Line) string {
		return fmt.Sprintf("%d; %d", count(all, (*Line).Lost), count(all, (*Line).LostSurely))
	}},
	{"beside not splitting", func(all []*Line) string { return fmt.Sprint(count(all, (*Line).LostUnsplit)) }},
	{"capacity over the best fair rival: least; median; mean of those below 3", func(all []*Line) string {
		return spread(ratios(all, (*Line).Ratio))
	}},
	{"fleets with more by over 3 %, within 3 %, less by over 3 %", func(all []*Line) string {
		return threeWays(ratios(all, (*Line).Ratio))
	}},
	{"capacity over not splitting: least; median; mean of those below 3; less in", func(all []*Line) string {
		return spreadBehind(ratios(all, (*Line).RatioUnsplit))
	}},
	{"over the better of both: the same", func(all []*Line) string {
		return spreadBehind(ratios(all, func(l *Line) float64 { return min(l.Ratio(), l.RatioUnsplit()) }))
	}},
	{"answers with a gap above 0.2 s at 0.7, above 1 s; the rival's", func(all []*Line) string {
		at := only(all, func(l *Line) bool { return l.Share == gapShare })
		return fmt.Sprintf("%.1f, %.2f %%; %.1f, %.2f %%",
			average(at, halting(Ours)), average(at, stuck(Ours)),
			average(at, halting(Rival)), average(at, stuck(Rival)))
	}},
	{"within the tight goal: ours; the rival; not split; the better of both", withinTight},
	{"the same, engines with steps of 1,024", withSteps(1024)},
	{"the same, 2,048", withSteps(2048)},
	{"the same, 8,192", withSteps(8192)},
	{"cells ahead, behind by over a point there, beside the rival; beside the better of both", aheadThere},
	{"first token later by over 5 %, the rival at 90 % of the tight goal as well; sooner; of", lateness},
	{"within the tight goal in the late cells: ours; the rival", func(all []*Line) string {
		late := only(all, (*Line).Late)
		return fmt.Sprintf("%.1f; %.1f %%", average(late, tight(Ours)), average(late, tight(Rival)))
	}},
}

// PrintTable writes what cells come to, all of them and those of open and of blind kinds, as a table in
// Markdown.
func PrintTable(w io.Writer, lines []Line) error {
	return printTable(w, "", pointers(lines), rows, func(l *Line) bool { return l.Blind })
}

func printTable[T any](w io.Writer, name string, all []*T, rows []row[T], blind func(*T) bool) error {
	columns := [][]*T{all, only(all, func(x *T) bool { return !blind(x) }), only(all, blind)}
	return printColumns(w, []string{name, "all", "open", "blind"}, columns, rows)
}

// printColumns writes a table whose first column has the rows' names and each other what they say of one lot.
func printColumns[T any](w io.Writer, heads []string, columns [][]*T, rows []row[T]) error {
	var text strings.Builder
	fmt.Fprintf(&text, "| %s |\n%s|\n", strings.Join(heads, " | "), strings.Repeat("|---", len(heads)))
	for _, r := range rows {
		text.WriteString("| " + r.name)
		for _, c := range columns {
			text.WriteString(" | " + r.text(c))
		}
		text.WriteString(" |\n")
	}
	_, err := io.WriteString(w, text.String()+"\n")
	return err
}

func pointers[T any](xs []T) (all []*T) {
	for i := range xs {
		all = append(all, &xs[i])
	}
	return all
}

func withinTight(all []*Line) string {
	if len(all) == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f; %.1f; %.1f; %.1f %%", average(all, tight(Ours)), average(all, tight(Rival)),
		average(all, tight(Unsplit)), average(all, (*Line).othersTight))
}

// othersTight is the larger share of answers within the tight goal of the two that ours is compared to.
func (l *Line) othersTight() float64 { return 100 * max(l.Tight(Rival), l.Tight(Unsplit)) }

func withSteps(of int) func([]*Line) string {
	return func(all []*Line) string {
		return withinTight(only(all, func(l *Line) bool { return l.Step == of }))
	}
}

func aheadThere(all []*Line) string {
	more, less := aheadBy(all, tight(Rival))
	moreBoth, lessBoth := aheadBy(all, (*Line).othersTight)
	return fmt.Sprintf("%d, %d; %d, %d", more, less, moreBoth, lessBoth)
}

// aheadBy counts the cells in which ours has over a point more within the tight goal than another, and those
// in which it has over a point less.
func aheadBy(all []*Line, other func(*Line) float64) (more, less int) {
	for _, l := range all {
		d := tight(Ours)(l) - other(l)
		more += one01(d > 100*LossOf)
		less += one01(d < -100*LossOf)
	}
	return more, less
}

func lateness(all []*Line) string {
	met := only(all, (*Line).bothMet)
	even := func(l *Line) bool { return l.Late() && l.Tight(Rival) >= evenEnough }
	return fmt.Sprintf("%d, %d; %d; %d", count(met, (*Line).Late), count(met, even),
		count(met, (*Line).sooner), len(met))
}

// bothMet reports whether ours and the rival have as many good answers as make a capacity.
func (l *Line) bothMet() bool { return l.Good(Ours) >= l.Enough && l.Good(Rival) >= l.Enough }

// sooner reports whether our mean time to first token is more than 5 % ahead of the rival's.
func (l *Line) sooner() bool { return lateBy*l.TTFT(Ours) < l.TTFT(Rival) }

// tight, halting and stuck are shares of a side's answers in percent.
func tight(s Side) func(*Line) float64 {
	return func(l *Line) float64 { return 100 * l.Tight(s) }
}

func halting(s Side) func(*Line) float64 {
	return func(l *Line) float64 { return 100 * l.Halting(s) }
}

func stuck(s Side) func(*Line) float64 {
	return func(l *Line) float64 { return 100 * l.Stuck(s) }
}

// ratios are those of each fleet in which capacities are known: of its one cell with gapShare.
func ratios(all []*Line, of func(*Line) float64) (xs []float64) {
	for _, l := range all {
		c := &l.Capacity
		if l.Share == gapShare && max(c.Ours, c.Rival) < beyond*l.Bound {
			xs = append(xs, of(l))
		}
	}
	return xs
}

func spread(xs []float64) string {
	if len(xs) == 0 {
		return ""
	}
	below := slices.DeleteFunc(slices.Clone(xs), func(x float64) bool { return x >= manyTimes })
	return fmt.Sprintf("%.2f; %.2f; %.2f", slices.Min(xs), median(xs), mean(below))
}

func spreadBehind(xs []float64) string {
	if len(xs) == 0 {
		return ""
	}
	_, less := counts(xs, 1)
	return fmt.Sprintf("%s; %d of %d", spread(xs), less, len(xs))
}

// threeWays counts those with more than another by over 3 %, about as much, and less.
func threeWays(xs []float64) string {
	more, less := counts(xs, noticeable)
	return fmt.Sprintf("%d, %d, %d", more, len(xs)-more-less, less)
}

// counts counts those that are more than by, and less than one over it.
func counts(xs []float64, by float64) (more, less int) {
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

// average is 0 of none.
func average(all []*Line, of func(*Line) float64) float64 {
	sum := 0.0
	for _, l := range all {
		sum += of(l)
	}
	return sum / float64(max(len(all), 1))
}
