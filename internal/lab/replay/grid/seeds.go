package grid

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/tandem-router/tandem/internal/lab/replay"
)

// AddSeeds plays a cell with further seeds, up to the given number. Policies and load stay those of the
// first seed.
func (p *Player) AddSeeds(ctx context.Context, l *Line, seeds int) error {
	p.usual.enough = l.Enough
	for len(l.Again)+1 < seeds {
		a, err := p.again(ctx, l, len(l.Again)+2)
		if err != nil {
			return fmt.Errorf("%s, seed %d: %w", l.Cell, len(l.Again)+2, err)
		}
		l.Again = append(l.Again, *a)
	}
	return nil
}

func (p *Player) again(ctx context.Context, l *Line, number int) (*Again, error) {
	a := &Again{Number: number, Windows: &Trio{}}
	pool := unsplit(l.Shape)
	held := &l.Capacity
	for _, side := range []struct {
		shape, form string
		figures     *Figures
		windows     *Windows
		holder      string
		from        float64
		capacity    *float64
	}{
		{l.Shape, ours, &a.Ours, &a.Windows.Ours, ours, held.Ours, &a.Capacity.Ours},
		{
			l.Shape, l.Rival.Policy, &a.Rival, &a.Windows.Rival,
			cmp.Or(held.RivalForm, l.Rival.Policy), held.Rival, &a.Capacity.Rival,
		},
		{
			pool, l.Unsplit.Policy, &a.Unsplit, &a.Windows.Unsplit,
			cmp.Or(held.UnsplitForm, l.Unsplit.Policy), held.Unsplit, &a.Capacity.Unsplit,
		},
	} {
		x, err := p.play(ctx, side.shape, side.form, l.Load, uint64(number-1))
		if err != nil {
			return nil, err
		}
		*side.figures, *side.windows = x.Figures, x.Windows
		if *side.capacity, err = p.hold(ctx, &p.usual, side.shape, side.holder, side.from, number); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// hold is the capacity of a form with another seed, searched near its capacity with the first; 0 if no tried
// load was held.
func (p *Player) hold(
	ctx context.Context, g *goal, shape, form string, about float64, number int,
) (float64, error) {
	if about == 0 {
		return 0, nil
	}
	load, err := p.search(ctx, g, shape, form, about, uint64(number-1), nearby)
	if errors.Is(err, replay.ErrNotHeld) {
		return 0, nil
	}
	return load, err
}

// AddSeedsTo finds the capacity of each holder of s with further seeds, in the same shape and form.
func (p *Player) AddSeedsTo(ctx context.Context, s *Shaped, seeds int) error {
	p.usual.enough = s.Usual.Enough
	p.tight.enough = s.Tight.Enough
	for _, m := range s.Goals() {
		g := &p.usual
		if m == &s.Tight {
			g = &p.tight
		}
		if m.Enough == 0 {
			continue
		}
		for _, h := range []*Holder{&m.Ours, &m.Rival, &m.Unsplit} {
			for len(h.Again)+1 < seeds {
				load, err := p.hold(ctx, g, h.Shape, h.Policy, h.Capacity, len(h.Again)+2)
				if err != nil {
					return fmt.Errorf("%s, seed %d: %w", s.Name, len(h.Again)+2, err)
				}
				h.Again = append(h.Again, load)
			}
		}
	}
	return nil
}
