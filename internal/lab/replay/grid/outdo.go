package grid

import (
	"context"
	"slices"
)

const (
	outdoes = 1.1 // the other forms are tried at this multiple of the best form's capacity
	outdone = 3   // most forms whose capacity is searched
)

// outdo replaces the best form by a form with a larger capacity. At the load of the tuning several forms have
// only good answers. Then the earlier first token ranks them, which says little about their capacities. If no
// load is too much, outdo tries nothing.
func (p *Player) outdo(ctx context.Context, c *contest, forms []string) error {
	forms = slices.DeleteFunc(slices.Clone(forms), func(form string) bool { return form == c.form })
	for range outdone {
		more := c.capacity * outdoes
		if more >= beyond*p.limit {
			return nil
		}
		best, good, err := p.first(ctx, c.shape, forms, more)
		if err != nil || good < p.usual.enough {
			return err
		}
		forms = slices.DeleteFunc(forms, func(form string) bool { return form == best })
		load, err := p.search(ctx, &p.usual, c.shape, best, more, 0, anew)
		if err != nil {
			return err
		}
		if load > c.capacity {
			c.form, c.capacity = best, load
		}
		if !slices.Contains(c.forms, best) {
			c.forms = append(c.forms, best)
		}
	}
	return nil
}

// first returns the form with the most good answers at a load, and their share; -1 without forms.
func (p *Player) first(
	ctx context.Context, shape string, forms []string, load float64,
) (form string, good float64, err error) {
	best, err := p.rank(ctx, &p.usual, shape, load, forms, 1)
	if err != nil || len(best) == 0 {
		return "", -1, err
	}
	x, err := p.play(ctx, shape, best[0], load, tuning)
	if err != nil {
		return "", -1, err
	}
	return best[0], x.Usual, nil
}

// haveEnough returns the forms of the tuning that have enough good answers at its load.
func (p *Player) haveEnough(ctx context.Context, shape string, load float64) ([]string, error) {
	forms, err := p.field(ctx, &p.usual, shape, load)
	if err != nil {
		return nil, err
	}
	var enough []string
	for _, form := range forms {
		x, err := p.play(ctx, shape, form, load, tuning)
		if err != nil {
			return nil, err
		}
		if x.Usual >= p.usual.enough {
			enough = append(enough, form)
		}
	}
	return enough, nil
}
