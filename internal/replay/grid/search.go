package grid

import (
	"context"
	"errors"
	"fmt"
	"math"
)

// goal is what answers are held to.
type goal struct {
	good   func(*Figures) float64 // share of answers that keep it
	enough float64                // share that makes a capacity; 0 where even an idle fleet keeps it hardly ever
}

// pace is how a capacity is searched: by so large steps until it is bracketed, of which there are so many at
// most, and then by so many halvings.
type pace struct {
	step   float64
	steps  int
	halves int
}

// The searches. A capacity is bracketed in steps, halved, and then read off a line.
var (
	anew   = pace{1.35, 12, 2}
	rough  = pace{1.35, 12, 0}
	wide   = pace{1.8, 6, 3}   // about where it is nothing is known
	nearby = pace{1.16, 12, 1} // it is known with another seed
)

// errNone is that a policy does not hold any load that was tried.
var errNone = errors.New("not enough good answers")

// try is one play of a search.
type try struct{ load, good float64 }

// search brackets a capacity, halves the bracket and reads the rest off a line.
func (p *Player) search(
	ctx context.Context, g *goal, shape, form string, load float64, seed uint64, how pace,
) (float64, error) {
	var below, above *try
	step := func(load float64) error {
		x, err := p.play(ctx, shape, form, load, seed)
		if err != nil {
			return err
		}
		if t := (&try{load, g.good(&x.Figures)}); t.good >= g.enough {
			below = t
		} else {
			above = t
		}
		return nil
	}
	for range how.steps {
		if err := step(load); err != nil {
			return 0, err
		}
		if below != nil && above != nil {
			break
		}
		if below != nil {
			load *= how.step
		} else {
			load /= how.step
		}
	}
	switch {
	case below == nil:
		return 0, fmt.Errorf("%s on %s: %w even at a load of %.3g", form, shape, errNone, above.load)
	case above == nil:
		return below.load, nil
	}
	for range how.halves {
		if err := step(math.Sqrt(below.load * above.load)); err != nil {
			return 0, err
		}
	}
	return cross(below, above, g.enough), nil
}

// cross is where the line through two plays has just enough.
func cross(below, above *try, enough float64) float64 {
	if below.good <= above.good {
		return below.load
	}
	return below.load + (above.load-below.load)*(below.good-enough)/(below.good-above.good)
}
