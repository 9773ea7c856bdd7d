package grid

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
)

// LossOf is by how many good answers a rival has to be ahead for a cell to be lost.
const LossOf = 0.01

// Lost reports whether a fair rival in the same shape is ahead.
func (l *Line) Lost() bool { return l.Rival.Usual-l.Ours.Usual > LossOf }

// LostUnsplit reports whether not splitting at all is ahead.
func (l *Line) LostUnsplit() bool { return l.Unsplit.Usual-l.Ours.Usual > LossOf }

// Ratio is our capacity over the best rival's in the same shape.
func (l *Line) Ratio() float64 { return l.Capacity.Ours / l.Capacity.Rival }

// RatioUnsplit is our capacity over that of not splitting.
func (l *Line) RatioUnsplit() float64 { return l.Capacity.Ours / l.Capacity.Unsplit }

// Late reports whether our mean time to first token is more than 5 % behind a rival's, where both have as
// many good answers as make a capacity.
func (l *Line) Late() bool {
	return l.Ours.Usual >= l.Enough && l.Rival.Usual >= l.Enough && l.Ours.TTFT > 1.05*l.Rival.TTFT
}

// Summary counts what is wanted of a grid.
type Summary struct {
	Name          string  `json:"name"`
	Cells         int     `json:"cells"`
	Lost          int     `json:"lost"`         // to a fair rival in the same shape
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
	OfBound       float64 `json:"mean_share_of_bound"` // our capacity over the load that no policy passes
}

// Sum sums up all cells, and those of the open and of the blind kinds.
func Sum(lines []Line) []Summary {
	all := func(*Line) bool { return true }
	return []Summary{
		sum("all", lines, all), sum("open", lines, func(l *Line) bool { return !l.Blind }),
		sum("blind", lines, func(l *Line) bool { return l.Blind }),
	}
}

func sum(name string, lines []Line, wanted func(*Line) bool) Summary {
	s := Summary{Name: name, Least: math.Inf(1), LeastUnsplit: math.Inf(1)}
	grounds, at07 := 0.0, 0.0
	for i := range lines {
		l := &lines[i]
		if !wanted(l) {
			continue
		}
		s.Cells++
		s.Lost += one01(l.Lost())
		s.LostUnsplit += one01(l.LostUnsplit())
		s.Late += one01(l.Late())
		if l.Share != gapShare { // a ground has one cell with it
			continue
		}
		grounds++
		s.Least, s.Mean = min(s.Least, l.Ratio()), s.Mean+l.Ratio()
		s.LeastUnsplit, s.MeanUnsplit = min(s.LeastUnsplit, l.RatioUnsplit()), s.MeanUnsplit+l.RatioUnsplit()
		s.OfBound += l.Capacity.Ours / l.Bound
		at07++
		s.Halting += l.Ours.Halting
		s.Stuck += l.Ours.Stuck
		s.HaltingOthers += l.Rival.Halting
		s.StuckOthers += l.Rival.Stuck
	}
	if grounds == 0 {
		s.Least, s.LeastUnsplit = 0, 0
		return s
	}
	for _, x := range []*float64{
		&s.Mean, &s.MeanUnsplit, &s.OfBound, &s.Halting, &s.Stuck, &s.HaltingOthers, &s.StuckOthers,
	} {
		*x /= grounds
	}
	return s
}

func one01(so bool) int {
	if so {
		return 1
	}
	return 0
}

// Print writes a line for each cell and what they come to.
func Print(w io.Writer, lines []Line) error {
	out := bufio.NewWriter(w)
	for i := range lines {
		l := &lines[i]
		mark := ""
		if l.Blind {
			mark += " blind"
		}
		if l.Lost() {
			mark += " LOST"
		}
		if l.LostUnsplit() {
			mark += " LOST to not splitting"
		}
		fmt.Fprintf(out, "%-58s load %7.3g  good %5.1f %% (%5.1f %s; %5.1f not split)  capacity %.2f x, %.2f x%s\n",
			l.Cell, l.Load, l.Ours.Usual*100, l.Rival.Usual*100, l.Rival.Policy, l.Unsplit.Usual*100, l.Ratio(),
			l.RatioUnsplit(), mark)
	}
	for _, s := range Sum(lines) {
		fmt.Fprintf(out, "%-5s %3d cells: %d lost, %d to not splitting, %d later by over 5 %%; "+
			"capacity over the best rival: least %.2f, mean %.2f; over not splitting: %.2f, %.2f; "+
			"gaps above 0.2 s at 0.7: %.1f %%, above 1 s: %.2f %% (the rival's: %.1f, %.2f); %.2f of the bound\n",
			s.Name, s.Cells, s.Lost, s.LostUnsplit, s.Late,
			s.Least, s.Mean, s.LeastUnsplit, s.MeanUnsplit, s.Halting*100, s.Stuck*100, s.HaltingOthers*100,
			s.StuckOthers*100, s.OfBound)
	}
	return out.Flush()
}

// Read reads the lines of a file; one that was cut off while it was written ends it.
func Read(r io.Reader) ([]Line, error) {
	var all []Line
	in := bufio.NewScanner(r)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var l Line
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			break
		}
		all = append(all, l)
	}
	return all, in.Err()
}

// Write writes a line.
func (l *Line) Write(w io.Writer) error { return json.NewEncoder(w).Encode(l) }
