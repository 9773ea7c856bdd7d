package grid

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/internal/lab/replay/policies"
)

// Shaped is the capacity of each side in its best shape with as many replicas, on one ground. The ground's
// own shape does not matter.
type Shaped struct {
	Name     string  `json:"name"`
	Kind     string  `json:"kind"`
	Blind    bool    `json:"blind"`
	Replicas int     `json:"replicas"`
	Cache    float64 `json:"cache"`
	Step     int     `json:"step"`
	Seed     uint64  `json:"seed"`
	Bound    float64 `json:"bound"` // load at which engines with a perfect cache are busy all the time
	Usual    Match   `json:"usual"`
	Tight    Match   `json:"tight"`
	Model    string  `json:"model,omitzero"` // see [Options.Model]
	Seconds  float64 `json:"seconds"`
}

// Match is the three sides at one goal.
type Match struct {
	Enough  float64 `json:"enough"` // 0: even an idle fleet hardly keeps this goal, so nothing was played
	Ours    Holder  `json:"ours"`
	Rival   Holder  `json:"rival"`           // the best fair rival that splits
	Unsplit Holder  `json:"unsplit"`         // the best policy in one pool
	Known   *Holder `json:"known,omitempty"` // the oracle that holds most, nil before any has played
}

// Holder is a policy in a shape, and the load that it holds.
type Holder struct {
	Shape    string    `json:"shape"`
	Policy   string    `json:"policy"`
	Capacity float64   `json:"capacity"`        // 0: no tried load was held
	Again    []float64 `json:"again,omitempty"` // its capacities with other seeds
}

// ShapedName names the comparison: the ground without its shape.
func (g *Ground) ShapedName() string {
	return fmt.Sprintf("%s/%d replicas/cache%g/step%d", g.Kind, replicas(g.Shape), g.Cache, g.Step)
}

// prefills is the number of prefill replicas of a shape.
func prefills(shape string) int {
	var p, d int
	if n, _ := fmt.Sscanf(shape, "%dP%dD", &p, &d); n == 2 {
		return p
	}
	return 0
}

// Shapes finds for each side the shape with its largest capacity, at the usual goal and at the tight goal.
func (p *Player) Shapes(ctx context.Context) (*Shaped, error) {
	g := p.ground
	s := &Shaped{
		Name: g.ShapedName(), Kind: g.Kind, Blind: g.Blind, Replicas: replicas(g.Shape),
		Cache: g.Cache, Step: g.Step, Seed: p.Seed, Model: p.Model(),
	}
	if err := p.shapes(ctx, s); err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name, err)
	}
	s.Seconds = time.Since(p.began).Seconds()
	return s, nil
}

func (p *Player) shapes(ctx context.Context, s *Shaped) error {
	if err := p.contests(ctx); err != nil {
		return err
	}
	s.Bound = p.limit
	if err := p.usualShapes(ctx, &s.Usual); err != nil {
		return err
	}
	if err := p.settleTight(ctx, s.Usual.Rival.Shape); err != nil || p.tight.enough == 0 {
		return err
	}
	return p.tightShapes(ctx, &s.Usual, &s.Tight)
}

// splitShape is the first shape of the search: the ground's own shape, or half and half if that does not
// split.
func (p *Player) splitShape() string {
	if n := replicas(p.ground.Shape); prefills(p.ground.Shape) == 0 {
		return cluster.ShapeOf(n/2, n)
	}
	return p.ground.Shape
}

// usualShapes begins with the results of the cells.
func (p *Player) usualShapes(ctx context.Context, m *Match) (err error) {
	m.Enough = p.usual.enough
	m.Unsplit = Holder{Shape: p.pool.shape, Policy: p.pool.form, Capacity: p.pool.capacity}
	start, guess := p.splitShape(), p.same.capacity
	rival := Holder{Shape: start, Policy: p.same.form, Capacity: p.same.capacity}
	forms := p.same.forms
	if start != p.same.shape {
		if forms, err = p.tune(ctx, &p.usual, start, guess); err != nil {
			return err
		}
		if rival, err = p.holder(ctx, &p.usual, start, forms, guess); err != nil {
			return err
		}
	}
	if m.Rival, err = p.climb(ctx, &p.usual, rival, forms, guess); err != nil {
		return err
	}
	if m.Rival.Shape != start { // another rule may be best in this shape
		forms, err := p.retune(ctx, &p.usual, &m.Rival)
		if err != nil {
			return err
		}
		if err := p.challenge(ctx, &p.usual, &m.Rival, m.Rival.Shape, forms, guess); err != nil {
			return err
		}
	}
	m.Ours, err = p.anywhere(ctx, &p.usual, []string{ours}, start, guess)
	return err
}

// settleTight finds the good answers of an idle fleet at the tight goal, with and without local prefills.
func (p *Player) settleTight(ctx context.Context, shape string) error {
	most := 0.0
	for _, rule := range firstOf {
		x, err := p.play(ctx, shape, inOne[0]+rule, p.same.capacity*idleLoad, tuning)
		if err != nil {
			return err
		}
		most = max(most, x.Tight)
	}
	p.tight.enough = replay.Enough(goodShare, most)
	return nil
}

// tightGuess is where the search for a capacity at the tight goal begins, as a share of the capacity at the
// usual goal.
const tightGuess = 0.5

// tightShapes begins with the shapes that are best at the usual goal. Rivals are tuned anew.
func (p *Player) tightShapes(ctx context.Context, usual, m *Match) (err error) {
	m.Enough = p.tight.enough
	guess := tightGuess * usual.Unsplit.Capacity
	forms, err := p.rank(ctx, &p.tight, usual.Unsplit.Shape, guess, inOne, kept)
	if err != nil {
		return err
	}
	if m.Unsplit, err = p.holder(ctx, &p.tight, usual.Unsplit.Shape, forms, guess); err != nil {
		return err
	}
	guess = tightGuess * usual.Rival.Capacity
	if forms, err = p.tune(ctx, &p.tight, usual.Rival.Shape, guess); err != nil {
		return err
	}
	rival, err := p.holder(ctx, &p.tight, usual.Rival.Shape, forms, guess)
	if err != nil {
		return err
	}
	if m.Rival, err = p.climb(ctx, &p.tight, rival, forms, guess); err != nil {
		return err
	}
	start := usual.Ours.Shape
	if prefills(start) == 0 {
		start = p.splitShape()
	}
	m.Ours, err = p.anywhere(ctx, &p.tight, []string{ours}, start, tightGuess*usual.Ours.Capacity)
	return err
}

// anywhere finds the best shape of some forms, one pool included.
func (p *Player) anywhere(
	ctx context.Context, g *goal, forms []string, start string, guess float64,
) (Holder, error) {
	best, err := p.holder(ctx, g, start, forms, guess)
	if err != nil {
		return best, err
	}
	if best, err = p.climb(ctx, g, best, forms, guess); err != nil {
		return best, err
	}
	err = p.challenge(ctx, g, &best, unsplit(start), forms, guess)
	return best, err
}

// holder is the best of some forms in a shape without results.
func (p *Player) holder(
	ctx context.Context, g *goal, shape string, forms []string, guess float64,
) (Holder, error) {
	h := Holder{Shape: shape, Policy: forms[0]}
	err := p.challenge(ctx, g, &h, shape, forms, guess)
	return h, err
}

// better is the ratio of capacities from which another form is examined.
const better = 1.02

// challenge replaces the best holder so far by a form and shape with a larger capacity. A form that does not
// hold a little more than the best is played only once.
func (p *Player) challenge(
	ctx context.Context, g *goal, best *Holder, shape string, forms []string, guess float64,
) error {
	for _, form := range forms {
		how, from := wide, guess
		if g == &p.usual {
			how = anew
		}
		if best.Capacity > 0 {
			how, from = anew, best.Capacity*better
			x, err := p.play(ctx, shape, form, from, 0)
			if err != nil {
				return err
			}
			if g.good(&x.Figures) < g.enough {
				continue
			}
		}
		load, err := p.search(ctx, g, shape, form, from, 0, how)
		if errors.Is(err, replay.ErrNotHeld) {
			continue
		}
		if err != nil {
			return err
		}
		if load > best.Capacity {
			*best = Holder{Shape: shape, Policy: form, Capacity: load}
		}
	}
	return nil
}

// climb searches a shape in which some forms hold more. It makes steps from the present shape and halves
// them, because the capacity of a fleet falls on both sides of its best ratio.
func (p *Player) climb(
	ctx context.Context, g *goal, best Holder, forms []string, guess float64,
) (Holder, error) {
	n := replicas(best.Shape)
	tried := map[int]bool{prefills(best.Shape): true}
	for step := max(1, n/4); step > 0; step /= 2 {
		for moved := true; moved; {
			at := prefills(best.Shape)
			for _, k := range []int{at + step, at - step} {
				if k < 1 || k >= n || tried[k] {
					continue
				}
				tried[k] = true
				if err := p.challenge(ctx, g, &best, cluster.ShapeOf(k, n), forms, guess); err != nil {
					return best, err
				}
			}
			moved = prefills(best.Shape) != at
		}
	}
	return best, nil
}

// retune is the best form of a holder's policy in its shape at about its capacity, with any rule.
func (p *Player) retune(ctx context.Context, g *goal, h *Holder) ([]string, error) {
	return p.rank(ctx, g, h.Shape, h.Capacity, withRules([]string{policies.WithoutLocal(h.Policy)}, p.Rules), 1)
}
