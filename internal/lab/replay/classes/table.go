package classes

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/tandem-router/tandem/internal/lab/trace"
)

// Cell is what came of a kind of traffic.
type Cell struct {
	Kind  string  `json:"kind"`
	Blind bool    `json:"blind"`
	Seed  uint64  `json:"seed"`
	Need  float64 `json:"need"` // share of good answers that is enough
	// Requests a second that the fleet holds without classes, and with the other policies as a multiple.
	Held  float64 `json:"held_without"`
	Ours  float64 `json:"ours"`
	Rival float64 `json:"rival,omitzero"` // the best rival
	Best  string  `json:"best_rival,omitzero"`
	// Shares of good answers at 1.25 times the load that the fleet holds without classes: of all, and by class.
	Without []float64 `json:"good_without"`
	With    []float64 `json:"good_with"`
}

// Result is what came of all kinds.
type Result struct {
	Cells     []Cell   `json:"cells"`
	NotPlayed []string `json:"not_played,omitempty"`
}

// more is how much more load than without classes a fleet with classes should hold.
const more = 1.25

// Run plays every kind with every seed.
func Run(ctx context.Context, o Options) (*Result, error) {
	x := &Result{}
	kinds := make([]trace.Kind, len(o.Kinds))
	for i, name := range o.Kinds {
		var err error
		if kinds[i], err = trace.FindKind(name); err != nil {
			return x, err
		}
	}
	for _, kind := range kinds {
		for seed := range o.Seeds {
			s := searched{
				Options: &o, kind: kind, seed: uint64(seed + 1), said: map[string]map[float64][]float64{},
			}
			c, err := s.cell(ctx)
			switch {
			case ctx.Err() != nil:
				return x, ctx.Err()
			case err != nil:
				x.NotPlayed = append(x.NotPlayed, fmt.Sprintf("%s: %v", kind.Name, err))
			default:
				x.Cells = append(x.Cells, *c)
			}
			if err != nil {
				break
			}
		}
	}
	if len(x.Cells) == 0 {
		return x, fmt.Errorf("no kind can be played: %v", x.NotPlayed)
	}
	return x, nil
}

// cell searches the capacities of all policies.
func (s *searched) cell(ctx context.Context) (*Cell, error) {
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	held, err := s.capacity(ctx, unclassed, 4/s.kind.Rate)
	if err != nil {
		return nil, err
	}
	c := &Cell{Kind: s.kind.Name, Blind: s.kind.Blind, Seed: s.seed, Need: s.need, Held: held * s.kind.Rate}
	with, err := s.capacity(ctx, ours, held)
	if err != nil {
		return nil, err
	}
	c.Ours = with / held
	if c.Without, err = s.play(ctx, unclassed, more*held); err != nil {
		return nil, err
	}
	if c.With, err = s.play(ctx, ours, more*held); err != nil || !s.Rivals {
		return c, err
	}
	for _, rival := range rivals {
		holds, err := s.capacity(ctx, rival, held)
		if err != nil {
			return nil, err
		}
		if holds/held > c.Rival {
			c.Rival, c.Best = holds/held, rival
		}
	}
	return c, nil
}

// Estimate is a mean and its 95 % interval.
type Estimate struct{ Mean, Low, High float64 }

// resamples is how often cells are drawn anew for an interval.
const resamples = 2000

// mean returns the geometric mean of a figure over cells, with its interval over kinds.
func mean(cells []Cell, figure func(*Cell) float64) Estimate {
	byKind := map[string][]float64{}
	var kinds []string
	for i := range cells {
		if v := figure(&cells[i]); v > 0 {
			if byKind[cells[i].Kind] == nil {
				kinds = append(kinds, cells[i].Kind)
			}
			byKind[cells[i].Kind] = append(byKind[cells[i].Kind], math.Log(v))
		}
	}
	of := func(kinds []string) float64 {
		sum, n := 0.0, 0.0
		for _, k := range kinds {
			for _, v := range byKind[k] {
				sum += v
				n++
			}
		}
		return math.Exp(sum / max(n, 1))
	}
	e := Estimate{Mean: of(kinds)}
	rnd := rand.New(rand.NewPCG(1, 0x636c6173))
	drawn := make([]float64, resamples)
	again := make([]string, len(kinds))
	for i := range drawn {
		for j := range again {
			again[j] = kinds[rnd.IntN(len(kinds))]
		}
		drawn[i] = of(again)
	}
	slices.Sort(drawn)
	e.Low, e.High = drawn[resamples/40], drawn[resamples-1-resamples/40]
	return e
}

// Print writes the result as a table.
func (x *Result) Print(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "Half of the requests: 0.5 s to the first token, 20 ms a token. "+
		"The other half: 10 s, 200 ms.\n"+
		"Load that is held, over the load without classes; good answers at %g times that load.\n\n", more)
	fmt.Fprintf(out, "| kind | enough | without, requests/s | classes | best rival | "+
		"without: all; both classes | classes |\n|---|---|---|---|---|---|---|\n")
	for i := range x.Cells {
		c := &x.Cells[i]
		blind, rival := "", "-"
		if c.Blind {
			blind = ", blind"
		}
		if c.Rival > 0 {
			rival = fmt.Sprintf("%.2f %s", c.Rival, c.Best)
		}
		fmt.Fprintf(out, "| %s%s | %.0f %% | %.3g | **%.2f** | %s | %s | %s |\n", c.Kind, blind, c.Need*100, c.Held,
			c.Ours, rival, shares(c.Without), shares(c.With))
	}
	x.means(out)
	fmt.Fprintln(out)
	for _, line := range x.NotPlayed {
		fmt.Fprintf(out, "not played: %s\n", line)
	}
	return out.Flush()
}

// means writes the means over open and over blind kinds.
func (x *Result) means(out io.Writer) {
	for _, part := range []struct {
		name string
		is   func(*Cell) bool
	}{{"open", func(c *Cell) bool { return !c.Blind }}, {"blind", func(c *Cell) bool { return c.Blind }}} {
		cells := slices.DeleteFunc(slices.Clone(x.Cells), func(c Cell) bool { return !part.is(&c) })
		if len(cells) == 0 {
			continue
		}
		fmt.Fprintf(out, "\n%s kinds, means with 95 %%: load held %s; ", part.name,
			mean(cells, func(c *Cell) float64 { return c.Ours }))
		if cells[0].Rival > 0 {
			fmt.Fprintf(out, "best rival %s; ", mean(cells, func(c *Cell) float64 { return c.Rival }))
		}
		fmt.Fprintf(out, "good answers at %g times the load %s", more,
			mean(cells, func(c *Cell) float64 { return c.With[0] / c.Without[0] }))
	}
}

func (e Estimate) String() string { return fmt.Sprintf("x %.2f (%.2f to %.2f)", e.Mean, e.Low, e.High) }

// shares writes the good answers of all, and of each class.
func shares(good []float64) string {
	return fmt.Sprintf("%.0f %%; %.0f, %.0f", good[0]*100, good[1]*100, good[2]*100)
}
