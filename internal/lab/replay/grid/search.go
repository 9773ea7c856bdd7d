package grid

import (
	"context"
	"errors"
	"fmt"

	"github.com/tandem-router/tandem/internal/lab/replay"
)

// goal is a goal of answers.
type goal struct {
	good   func(*Figures) float64 // share of answers that keep it
	enough float64                // share of good answers at a capacity; 0: even an idle fleet hardly keeps it
}

// The searches of a capacity.
var (
	anew   = replay.Search{Step: 1.35, Steps: 12, Halves: 2}
	rough  = replay.Search{Step: 1.35, Steps: 12}
	wide   = replay.Search{Step: 1.8, Steps: 6, Halves: 3}   // the capacity is unknown
	nearby = replay.Search{Step: 1.16, Steps: 12, Halves: 1} // it is known for another seed
)

// search searches the capacity of a policy on a shape. The error is [replay.ErrNotHeld] if the policy holds
// no tried load.
func (p *Player) search(
	ctx context.Context, g *goal, shape, form string, load float64, seed uint64, how replay.Search,
) (float64, error) {
	held, err := how.Capacity(load, g.enough, func(load float64) (float64, error) {
		x, err := p.play(ctx, shape, form, load, seed)
		if err != nil {
			return 0, err
		}
		return g.good(&x.Figures), nil
	})
	if errors.Is(err, replay.ErrNotHeld) {
		return 0, fmt.Errorf("%s on %s: %w", form, shape, err)
	}
	return held, err
}
