package grid

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// lateBy is the multiple of a rival's mean TTFT from which a cell is late.
const lateBy = 1.05

// LossOf is the lead in good answers with which a rival wins a cell.
const LossOf = 0.01

// Good is the share of answers that keep the usual goal. Like all figures of a line it is the median over the
// seeds.
func (l *Line) Good(s Side) float64 {
	return l.median(s, func(f *Figures) float64 { return f.Usual })
}

// Tight is the share of answers that keep the tight goal.
func (l *Line) Tight(s Side) float64 {
	return l.median(s, func(f *Figures) float64 { return f.Tight })
}

// TTFT is the mean time to first token.
func (l *Line) TTFT(s Side) float64 { return l.median(s, func(f *Figures) float64 { return f.TTFT }) }

// TPOT99 is the p99 of TPOT.
func (l *Line) TPOT99(s Side) float64 {
	return l.median(s, func(f *Figures) float64 { return f.TPOT99 })
}

// Halting is the share of answers with a gap above 0.2 s.
func (l *Line) Halting(s Side) float64 {
	return l.median(s, func(f *Figures) float64 { return f.Halting })
}

// Stuck is the share of answers with a gap above 1 s.
func (l *Line) Stuck(s Side) float64 {
	return l.median(s, func(f *Figures) float64 { return f.Stuck })
}

// Lost reports whether a fair rival in the same shape is ahead.
func (l *Line) Lost() bool { return l.Good(Rival)-l.Good(Ours) > LossOf }

// LostSurely reports whether a fair rival in the same shape is ahead, and the difference is not chance.
func (l *Line) LostSurely() bool {
	in, known := l.Ahead()
	return l.Lost() && known && in.High < 0
}

// LostUnsplit reports whether the best policy in one pool is ahead.
func (l *Line) LostUnsplit() bool { return l.Good(Unsplit)-l.Good(Ours) > LossOf }

// Ratio is Tandem's capacity divided by the best rival's in the same shape.
func (l *Line) Ratio() float64 {
	return l.ratio(func(c *Capacities) float64 { return c.Rival })
}

// RatioUnsplit is Tandem's capacity divided by the capacity of one pool.
func (l *Line) RatioUnsplit() float64 {
	return l.ratio(func(c *Capacities) float64 { return c.Unsplit })
}

// Late reports whether Tandem's mean TTFT is more than 5 % longer than a rival's. It is false unless both
// have enough good answers for a capacity.
func (l *Line) Late() bool {
	return l.bothMet() && l.TTFT(Ours) > lateBy*l.TTFT(Rival)
}

// Summary compares a grid with its targets.
type Summary struct {
	Name          string  `json:"name"`
	Cells         int     `json:"cells"`
	Lost          int     `json:"lost"`         // to a fair rival in the same shape
	LostSurely    int     `json:"lost_surely"`  // lost cells in which the interval of the difference has no 0
	LostUnsplit   int     `json:"lost_unsplit"` // to not splitting
	Late          int     `json:"late"`
	Least         float64 `json:"least_capacity_ratio"`
	Mean          float64 `json:"mean_capacity_ratio"`
	LeastUnsplit  float64 `json:"least_capacity_ratio_unsplit"`
	MeanUnsplit   float64 `json:"mean_capacity_ratio_unsplit"`
	Halting       float64 `json:"gap_above_200ms_at_0.7"`
	Stuck         float64 `json:"gap_above_1s_at_0.7"`
	HaltingOthers float64 `json:"rival_gap_above_200ms_at_0.7"`
	StuckOthers   float64 `json:"rival_gap_above_1s_at_0.7"`
	OfBound       float64 `json:"mean_share_of_bound"` // Tandem's capacity over the load that no policy can hold
	Plays         int     `json:"plays"`               // of each side: one per cell and seed
	Collapsed     [3]int  `json:"collapsed"`           // plays in which one side did not keep up, by [Side]
}

// Sum sums up all cells, and separately the open and the blind kinds.
func Sum(lines []Line) []Summary {
	all := func(*Line) bool { return true }
	return []Summary{
		sum("all", lines, all), sum("open", lines, func(l *Line) bool { return !l.Blind }),
		sum("blind", lines, func(l *Line) bool { return l.Blind }),
	}
}

func sum(name string, lines []Line, wanted func(*Line) bool) Summary {
	all := only(pointers(lines), wanted)
	s := Summary{
		Name: name, Cells: len(all), Lost: count(all, (*Line).Lost), LostSurely: count(all, (*Line).LostSurely),
		LostUnsplit: count(all, (*Line).LostUnsplit), Late: count(all, (*Line).Late),
	}
	for _, l := range all {
		s.Plays += l.Plays()
		for who := range s.Collapsed {
			s.Collapsed[who] += l.Collapsed(Side(who))
		}
	}
	s.Least, s.Mean = leastAndMean(ratios(all, (*Line).Ratio, Rival))
	s.LeastUnsplit, s.MeanUnsplit = leastAndMean(ratios(all, (*Line).RatioUnsplit, Unsplit))
	_, s.OfBound = leastAndMean(ratios(all, (*Line).ofBound))

	at := only(all, func(l *Line) bool { return l.Share == gapShare })
	s.Halting, s.HaltingOthers = average(at, halting(Ours))/100, average(at, halting(Rival))/100
	s.Stuck, s.StuckOthers = average(at, stuck(Ours))/100, average(at, stuck(Rival))/100
	return s
}

// leastAndMean are 0 without values.
func leastAndMean(xs []float64) (least, average float64) {
	if len(xs) == 0 {
		return 0, 0
	}
	return slices.Min(xs), mean(xs)
}

func one01(so bool) int {
	if so {
		return 1
	}
	return 0
}

// Print writes a line for each cell, and the sums.
func Print(w io.Writer, lines []Line) error {
	out := bufio.NewWriter(w)
	for i := range lines {
		l := &lines[i]
		fmt.Fprintf(out, "%-58s load %7.3g  good %5.1f %% (%5.1f %s; %5.1f not split)  capacity %.2f x, %.2f x%s\n",
			l.Cell, l.Load, l.Good(Ours)*100, l.Good(Rival)*100, l.Rival.Policy, l.Good(Unsplit)*100, l.Ratio(),
			l.RatioUnsplit(), l.marks())
	}
	for _, s := range Sum(lines) {
		fmt.Fprintf(out, "%-5s %3d cells: %d lost, %d of them surely, %d to not splitting, %d later by over 5 %%; "+
			"capacity over the best rival: least %.2f, mean %.2f; over not splitting: %.2f, %.2f; "+
			"gaps above 0.2 s at 0.7: %.1f %%, above 1 s: %.2f %% (the rival's: %.1f, %.2f); %.2f of the bound; "+
			"of %d plays each %d, %d and %d collapsed (ours, the rival's, not split)\n",
			s.Name, s.Cells, s.Lost, s.LostSurely, s.LostUnsplit, s.Late,
			s.Least, s.Mean, s.LeastUnsplit, s.MeanUnsplit, s.Halting*100, s.Stuck*100, s.HaltingOthers*100,
			s.StuckOthers*100, s.OfBound, s.Plays, s.Collapsed[Ours], s.Collapsed[Rival], s.Collapsed[Unsplit])
	}
	for _, s := range SumKnown(lines) {
		fmt.Fprintf(out, "%-5s %3d cells that oracles have played, first draw: no oracle is as good as the rival "+
			"in %d of the %d lost; over the rival's capacity: least %.2f, mean %.2f, of which ours is %.2f; within "+
			"the tight goal %.1f %% (ours %.1f); of %d late cells no oracle is in time and as even as the more even "+
			"of both in %d\n",
			s.Name, s.Cells, s.LostToo, s.Lost, s.Least, s.Mean, s.Share, s.Tight*100, s.Ours*100, s.Late, s.LateToo)
	}
	return out.Flush()
}

// marks are the remarks after the figures of a cell.
func (l *Line) marks() string {
	text := ""
	if in, known := l.Ahead(); known {
		text += fmt.Sprintf("  ahead by [%+.1f, %+.1f]", in.Low*100, in.High*100)
	}
	if n := l.Plays(); n > 1 {
		text += fmt.Sprintf("  collapsed %d, %d, %d of %d", l.Collapsed(Ours), l.Collapsed(Rival),
			l.Collapsed(Unsplit), n)
	}
	if len(l.Known) > 0 {
		text += fmt.Sprintf("  all known %.1f %%", l.KnownGood()*100)
	}
	if l.Blind {
		text += " blind"
	}
	if l.Lost() {
		text += " LOST"
	}
	if l.LostUnsplit() {
		text += " LOST to not splitting"
	}
	return text
}

// Read reads the lines of a file, of [Line] or of [Shaped]. An incomplete line ends the reading.
func Read[T Line | Shaped | Facts](r io.Reader) ([]T, error) {
	var all []T
	in := bufio.NewScanner(r)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var l T
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			break
		}
		all = append(all, l)
	}
	return all, in.Err()
}

// Write writes lines.
func Write[T Line | Shaped | Facts](w io.Writer, lines []T) error {
	out := json.NewEncoder(w)
	for i := range lines {
		if err := out.Encode(&lines[i]); err != nil {
			return err
		}
	}
	return nil
}

// Plays is the number of seeds with which the cell was played.
func (l *Line) Plays() int { return 1 + len(l.Again) }

// Side is one of the compared policies.
type Side uint8

// Tandem, the best fair rival in the same shape, and the best policy in one pool of as many replicas.
const (
	Ours Side = iota
	Rival
	Unsplit
)

// figures of a side, one value per seed.
func (l *Line) figures(s Side) []*Figures {
	all := []*Figures{[]*Figures{&l.Ours, &l.Rival, &l.Unsplit}[s]}
	for i := range l.Again {
		a := &l.Again[i]
		all = append(all, []*Figures{&a.Ours, &a.Rival, &a.Unsplit}[s])
	}
	return all
}

// median over the seeds.
func (l *Line) median(s Side, of func(*Figures) float64) float64 {
	var xs []float64
	for _, f := range l.figures(s) {
		xs = append(xs, of(f))
	}
	return median(xs)
}

// collapsedShare defines a collapsed play: it has less than this part of the good answers at a capacity,
// because its queues grew all the time. A mean would then depend on the length of the play.
const collapsedShare = 0.5

// Collapsed counts the plays of a side in which it did not keep up.
func (l *Line) Collapsed(s Side) int {
	n := 0
	for _, f := range l.figures(s) {
		n += one01(f.Usual < collapsedShare*l.Enough)
	}
	return n
}

// ratio is the median over the seeds of Tandem's capacity divided by another's.
func (l *Line) ratio(of func(*Capacities) float64) float64 {
	xs := []float64{over(l.Capacity.Ours, of(&l.Capacity))}
	for i := range l.Again {
		c := &l.Again[i].Capacity
		xs = append(xs, over(c.Ours, of(c)))
	}
	return median(xs)
}

// over is a ratio that is always a number: 1 if neither side holds anything. A side that holds nothing
// counts as holding a tenth.
func over(a, b float64) float64 {
	switch {
	case b > 0:
		return min(a/b, mostOver)
	case a > 0:
		return mostOver
	}
	return 1
}

const mostOver = 10

// Ahead is Tandem's lead in good answers over the rival, with its interval over windows of all seeds. It is
// known if windows were kept.
func (l *Line) Ahead() (in Interval, known bool) {
	var plays []pairing
	add := func(t *Trio) {
		if t != nil {
			plays = append(plays, pairing{t.Ours, t.Rival})
		}
	}
	add(l.Windows)
	for i := range l.Again {
		add(l.Again[i].Windows)
	}
	return difference(plays)
}
