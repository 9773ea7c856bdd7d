package replay

import (
	"errors"
	"fmt"
	"math"
)

// Search says how a capacity is searched: first up or down in steps until one load is held and the next is
// not, then by halving the gap, then by the straight line through the two ends.
type Search struct {
	Step   float64 // ratio of a load to the one before, above 1
	Steps  int     // most steps
	Halves int
}

// ErrNotHeld means that no tried load is held.
var ErrNotHeld = errors.New("not enough good answers")

// Capacity returns the load with just enough good answers. The search begins at load. good plays one load and
// returns its share of good answers. If every tried load has enough, Capacity returns the largest. If no load
// has enough, the error is [ErrNotHeld].
func (s Search) Capacity(load, enough float64, good func(load float64) (float64, error)) (float64, error) {
	b := bracket{enough: enough, good: good}
	if err := b.open(load, s); err != nil {
		return 0, err
	}
	switch {
	case b.below == nil:
		return 0, fmt.Errorf("%w even at a load of %.3g", ErrNotHeld, b.above.load)
	case b.above == nil:
		return b.below.load, nil
	}
	for range s.Halves {
		if err := b.step(math.Sqrt(b.below.load * b.above.load)); err != nil {
			return 0, err
		}
	}
	return b.cross(), nil
}

// try is one play of a search.
type try struct{ load, good float64 }

// bracket has the last play on each side of the capacity, nil if there is none.
type bracket struct {
	good         func(load float64) (float64, error) // plays one load
	enough       float64
	below, above *try
}

// step plays a load and makes the load the new end of its side.
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

// open goes up or down from load until both sides have a play, or no steps are left.
func (b *bracket) open(load float64, s Search) error {
	for range s.Steps {
		if err := b.step(load); err != nil {
			return err
		}
		switch {
		case b.below != nil && b.above != nil:
			return nil
		case b.below != nil:
			load *= s.Step
		default:
			load /= s.Step
		}
	}
	return nil
}

// cross returns the load at which the line through both plays has just enough.
func (b *bracket) cross() float64 {
	below, above := b.below, b.above
	if below.good <= above.good {
		return below.load
	}
	return below.load + (above.load-below.load)*(below.good-b.enough)/(below.good-above.good)
}
