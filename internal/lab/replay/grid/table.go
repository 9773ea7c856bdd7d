package grid

import (
	"fmt"
	"io"
	"strings"
)

// evenEnough is the share of answers within the tight goal from which a rival keeps the goal.
const evenEnough = 0.9

// row is a row of a table: a figure of some cells, or of some fleets' best shapes.
type row[T any] struct {
	name string
	text func(some []*T) string
}

// Rows that the table of oracles has too.
var (
	rowCells = row[Line]{"cells", func(all []*Line) string { return fmt.Sprint(len(all)) }}
	rowRatio = row[Line]{"capacity over the best fair rival: least; median; mean", func(all []*Line) string {
		return spread(ratios(all, (*Line).Ratio, Rival))
	}}
	rowThreeWays = row[Line]{
		"fleets with more by over 3 %, within 3 %, less by over 3 %",
		func(all []*Line) string { return threeWays(ratios(all, (*Line).Ratio, Rival)) },
	}
)

// rows are the rows of the first table of docs/results.md.
var rows = []row[Line]{
	rowCells,
	{"over a point fewer good answers than a fair rival in the same fleet; surely", func(all []*Line) string {
		return fmt.Sprintf("%d; %d", count(all, (*Line).Lost), count(all, (*Line).LostSurely))
	}},
	{"over a point fewer than not splitting", func(all []*Line) string {
		return fmt.Sprint(count(all, (*Line).LostUnsplit))
	}},
	rowRatio, rowThreeWays,
	{"capacity over not splitting: least; median; mean; less in", func(all []*Line) string {
		return spreadBehind(ratios(all, (*Line).RatioUnsplit, Unsplit))
	}},
	{"capacity over the better of both: least; median; mean; less in", func(all []*Line) string {
		return spreadBehind(ratios(all, (*Line).ratioBoth, Rival, Unsplit))
	}},
	{"ours over what the engines hold with a perfect cache: least; median; mean", func(all []*Line) string {
		return spread(ratios(all, (*Line).ofBound))
	}},
	{"answers with a gap above 0.2 s at 0.7, above 1 s; the rival's", func(all []*Line) string {
		at := only(all, func(l *Line) bool { return l.Share == gapShare })
		return fmt.Sprintf("%.1f, %.2f %%; %.1f, %.2f %%",
			average(at, halting(Ours)), average(at, stuck(Ours)),
			average(at, halting(Rival)), average(at, stuck(Rival)))
	}},
	{"within the tight goal: ours; the rival; not split; the better of both", withinTight},
	{"within the tight goal, steps of 1,024 tokens", withSteps(1024)},
	{"within the tight goal, steps of 2,048 tokens", withSteps(2048)},
	{"within the tight goal, steps of 8,192 tokens", withSteps(8192)},
	{"cells ahead, behind by over a point there, beside the rival; beside the better of both", aheadThere},
	{"first token later by over 5 %, the rival at 90 % of the tight goal as well; sooner; " +
		"of cells in which both have enough", lateness},
	{"within the tight goal in the late cells: ours; the rival", func(all []*Line) string {
		late := only(all, (*Line).Late)
		if len(late) == 0 {
			return ""
		}
		return fmt.Sprintf("%.1f; %.1f %%", average(late, tight(Ours)), average(late, tight(Rival)))
	}},
	{"plays in which ours, the rival, not split did not keep up; of", func(all []*Line) string {
		sum := func(of func(*Line) int) (n int) {
			for _, l := range all {
				n += of(l)
			}
			return n
		}
		collapsed := func(s Side) int { return sum(func(l *Line) int { return l.Collapsed(s) }) }
		return fmt.Sprintf("%d, %d, %d; %d", collapsed(Ours), collapsed(Rival), collapsed(Unsplit),
			sum((*Line).Plays))
	}},
}

// PrintTable writes the sums of cells as a table in Markdown: all cells, the cells of open and of blind
// kinds, and the cells of fleets that split. In the other cells the best policy of one pool is the rival
// itself.
func PrintTable(w io.Writer, lines []Line) error {
	all := pointers(lines)
	columns := [][]*Line{
		all, only(all, func(l *Line) bool { return !l.Blind }), only(all, func(l *Line) bool { return l.Blind }),
		only(all, func(l *Line) bool { return prefills(l.Shape) > 0 }),
	}
	return printColumns(w, []string{"", "all", "open", "blind", "all that split"}, columns, rows)
}

// printColumns writes a table. Its first column has the names of the rows. Each other column has the figures
// of one group.
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

// othersTight is the larger share of answers within the tight goal of the rival and of one pool.
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

// aheadBy counts two kinds of cells: cells in which ours is over a point better by the tight goal, and cells
// in which it is over a point worse.
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

// bothMet reports whether ours and the rival both have enough good answers for a capacity.
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
