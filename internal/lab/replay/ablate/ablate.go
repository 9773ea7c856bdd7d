// Package ablate measures what each mechanism of the decision is worth: a panel of cells is played with the
// mechanism switched off, and compared with the same plays of the whole decision.
package ablate

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay"
)

// Options of [Run].
type Options struct {
	Traces     string // folder of the recorded kinds' files
	Cells      []Cell
	Mechanisms []Mechanism
	Seeds      int           // plays of each cell with different seeds, at least 1; the traffic stays the same
	For        time.Duration // approximate virtual time of a play
	// Progress is called after each play with the finished share of all plays; may be nil.
	Progress func(text string, share float64)
}

// Figures are the results of one policy in one cell: means over the seeds.
type Figures struct {
	Good  float64 `json:"good"`  // share of answers within [replay.Usual]
	Tight float64 `json:"tight"` // within [replay.Tight]
	TTFT  float64 `json:"ttft_mean_s"`
}

// Effect is how the results of the panel change without a mechanism.
type Effect struct {
	Mechanism string `json:"mechanism"`
	Size
	Good  float64 `json:"good"`       // points, in the mean over the cells
	Blind float64 `json:"blind_good"` // the same over cells with a blind kind of traffic
	Tight float64 `json:"tight"`      // points
	TTFT  float64 `json:"ttft"`       // factor of the TTFT, in the geometric mean
	// The cell that loses most good answers, and the cell that loses most within the tight goal.
	Worst      Change `json:"worst"`
	WorstTight Change `json:"worst_tight"`
	// The results of the policy without the mechanism in each cell.
	Cells map[string]Figures `json:"cells"`
}

// Change is the change of a cell in points.
type Change struct {
	Cell   string  `json:"cell"`
	Points float64 `json:"points"`
}

// Result is an ablation.
type Result struct {
	Reference map[string]Figures `json:"reference"`
	// Noise is the largest difference between one seed of the reference and the mean of the other seeds. A
	// smaller effect means nothing. It is zero with one seed.
	Noise   Effect   `json:"noise"`
	Effects []Effect `json:"effects"`
	// NotPlayed has a line for each cell that could not be played.
	NotPlayed []string `json:"not_played,omitempty"`
}

// run is a running ablation.
type run struct {
	*Options
	played, plays int
}

// Run plays the panel.
func Run(ctx context.Context, o Options) (*Result, error) {
	r := run{Options: &o, plays: len(o.Cells) * o.Seeds * (1 + len(o.Mechanisms))}
	x := &Result{}
	var all [][]Figures // of the reference, by cell and seed
	var cells []Cell
	for _, c := range o.Cells {
		figures, err := r.cell(ctx, &c, reference)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			x.NotPlayed = append(x.NotPlayed, fmt.Sprintf("%s: %v", c.Name(), err))
			r.plays -= o.Seeds * (1 + len(o.Mechanisms))
			continue
		}
		cells, all = append(cells, c), append(all, figures)
	}
	if len(cells) == 0 {
		return x, fmt.Errorf("no cell can be played: %v", x.NotPlayed)
	}
	whole := means(all)
	x.Reference = byName(cells, whole)
	x.Noise = noise(cells, all)
	for i := range o.Mechanisms {
		m := &o.Mechanisms[i]
		var without [][]Figures
		for j := range cells {
			figures, err := r.cell(ctx, &cells[j], m.Policy)
			if err != nil {
				return x, fmt.Errorf("%s without %s: %w", cells[j].Name(), m.Name, err)
			}
			without = append(without, figures)
		}
		e := effect(cells, whole, means(without))
		e.Mechanism, e.Size = m.Name, m.Size
		x.Effects = append(x.Effects, e)
	}
	return x, nil
}

// cell plays a cell with a policy, once with each seed.
func (r *run) cell(ctx context.Context, c *Cell, policy string) ([]Figures, error) {
	p, err := c.play(r.Options)
	if err != nil {
		return nil, err
	}
	var all []Figures
	for s := range r.Seeds {
		p.Chance = uint64(s)
		o, _, err := p.Once(ctx, policy)
		if err != nil {
			return nil, err
		}
		all = append(all, Figures{Good: o.Usual, Tight: o.Tight, TTFT: replay.Loss(o)})
		r.played++
		if r.Progress != nil {
			r.Progress(fmt.Sprintf("%s %s: good %.1f %%, tight %.1f %%, TTFT %.3g s of %d (%.1f s)", c.Name(), policy,
				100*o.Usual, 100*o.Tight, replay.Loss(o), o.Measured, o.Seconds), float64(r.played)/float64(r.plays))
		}
	}
	return all, nil
}

// means returns the mean over the seeds of each cell.
func means(all [][]Figures) []Figures {
	var out []Figures
	for _, seeds := range all {
		out = append(out, mean(seeds))
	}
	return out
}

func mean(all []Figures) (sum Figures) {
	for _, f := range all {
		sum.Good += f.Good
		sum.Tight += f.Tight
		sum.TTFT += f.TTFT
	}
	n := float64(max(len(all), 1))
	return Figures{sum.Good / n, sum.Tight / n, sum.TTFT / n}
}

func byName(cells []Cell, figures []Figures) map[string]Figures {
	out := map[string]Figures{}
	for i := range cells {
		out[cells[i].Name()] = figures[i]
	}
	return out
}

// effect compares plays without a mechanism with plays of the whole decision, cell by cell.
func effect(cells []Cell, whole, without []Figures) Effect {
	e := Effect{Cells: byName(cells, without)}
	n, blind := float64(len(cells)), 0
	for i := range cells {
		name := cells[i].Name()
		good, tight := 100*(without[i].Good-whole[i].Good), 100*(without[i].Tight-whole[i].Tight)
		e.Good += good / n
		e.Tight += tight / n
		if cells[i].Blind() {
			blind++
			e.Blind += good
		}
		if whole[i].TTFT > 0 && without[i].TTFT > 0 {
			e.TTFT += math.Log(without[i].TTFT/whole[i].TTFT) / n
		}
		if good < e.Worst.Points {
			e.Worst = Change{name, good}
		}
		if tight < e.WorstTight.Points {
			e.WorstTight = Change{name, tight}
		}
	}
	e.Blind /= float64(max(blind, 1))
	e.TTFT = math.Exp(e.TTFT)
	return e
}

// noise is the largest difference between one seed and the mean of the others.
func noise(cells []Cell, all [][]Figures) Effect {
	most := Effect{Mechanism: "noise", TTFT: 1}
	seeds := len(all[0])
	if seeds < 2 {
		return most
	}
	for s := range seeds {
		var one, others []Figures
		for _, of := range all {
			one = append(one, of[s])
			others = append(others, mean(append(append([]Figures{}, of[:s]...), of[s+1:]...)))
		}
		e := effect(cells, others, one)
		most.Good = max(most.Good, math.Abs(e.Good))
		most.Blind = max(most.Blind, math.Abs(e.Blind))
		most.Tight = max(most.Tight, math.Abs(e.Tight))
		most.TTFT = max(most.TTFT, e.TTFT, 1/e.TTFT)
		if e.Worst.Points < most.Worst.Points {
			most.Worst = e.Worst
		}
		if e.WorstTight.Points < most.WorstTight.Points {
			most.WorstTight = e.WorstTight
		}
	}
	return most
}
