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

// pace sets how a capacity is searched: the size and the largest number of steps until it is bracketed, and
// then the number of halvings.
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
	b := bracket{enough: g.enough, good: func(load float64) (float64, error) {
		x, err := p.play(ctx, shape, form, load, seed)
		if err != nil {
			return 0, err
		}
		return g.good(&x.Figures), nil
	}}
	if err := b.open(load, how); err != nil {
		return 0, err
	}
	switch {
	case b.below == nil:
		return 0, fmt.Errorf("%s on %s: %w even at a load of %.3g", form, shape, errNone, b.above.load)
	case b.above == nil:
		return b.below.load, nil
	}
	for range how.halves {
		if err := b.step(math.Sqrt(b.below.load * b.above.load)); err != nil {
			return 0, err
		}
	}
	return cross(b.below, b.above, g.enough), nil
}

// bracket has the last play on each side of the capacity; nil without a play.
type bracket struct {
	good         func(load float64) (float64, error) // plays one load
	enough       float64
	below, above *try
}

// step plays a load, which is the end of its side from now on.
func (b *bracket) step(load float64) error {
	good, err := b.good(load)
	if err != nil {
		return err
	}
	if t := (&try{load, good}); t.good >= b.enough {
		b.below = t
	} else {
		b.above = t
	}
	return nil
}

// open goes up or down from load until both sides have a play, or the steps are over.
func (b *bracket) open(load float64, how pace) error {
	for range how.steps {
		if err := b.step(load); err != nil {
			return err
		}
		switch {
		case b.below != nil && b.above != nil:
			return nil
		case b.below != nil:
			load *= how.step
		default:
			load /= how.step
		}
	}
	return nil
}

// cross is where the line through two plays has just enough.
func cross(below, above *try, enough float64) float64 {
	if below.good <= above.good {
		return below.load
	}
	return below.load + (above.load-below.load)*(below.good-enough)/(below.good-above.good)
}
