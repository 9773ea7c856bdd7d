package grid

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay"
	"github.com/tandem-router/tandem/internal/lab/replay/policies"
)

// What makes a goal of a fleet.
const (
	goodShare = 0.9
	idleLoad  = 0.1 // of the guess
)

// tuning is the seed of the plays for tuning policies.
const tuning = replay.DevSeed

// Fair rivals: policies for two pools, each with a rule for local prefills, and policies for one pool.
var (
	apart = []string{"dynamo:credit=1.5", "dynamo:credit=3", "lmetric", "kv-aware"}
	inOne = []string{
		"lmetric", "dynamo-mixed", "dynamo-mixed:credit=3", "llm-d:local=0", "least-tokens", "round-robin",
	}
	firstOf = []string{"", "+local:k=2"} // rules with which every policy is tried
)

// How many policies are tried with all rules, and how many forms are judged.
const kept = 2

// contest is the best of several policies in one shape.
type contest struct {
	shape    string
	forms    []string // best first, by tuning
	form     string   // the form with the capacity
	capacity float64
}

// Cells plays the cells of the ground.
func (p *Player) Cells(ctx context.Context) ([]Line, error) {
	lines, err := p.cells(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.ground.Name(), err)
	}
	for i := range lines {
		lines[i].Seconds = time.Since(p.began).Seconds()
	}
	return lines, nil
}

func (p *Player) cells(ctx context.Context) ([]Line, error) {
	if err := p.contests(ctx); err != nil {
		return nil, err
	}
	mine, err := p.search(ctx, &p.usual, p.same.shape, ours, p.same.capacity, 0, anew)
	if err != nil {
		return nil, err
	}
	var lines []Line
	for _, share := range p.ground.Shares {
		l, err := p.cell(ctx, share)
		if err != nil {
			return nil, err
		}
		l.Bound, l.Enough = p.limit, p.usual.enough
		l.Capacity = Capacities{
			Ours: mine, Rival: p.same.capacity, Unsplit: p.pool.capacity,
			RivalForm: p.same.form, UnsplitForm: p.pool.form,
		}
		lines = append(lines, *l)
	}
	return lines, nil
}

// contests finds the best rivals in the ground's shape and in one pool, and their capacities.
func (p *Player) contests(ctx context.Context) (err error) {
	if p.same != nil {
		return nil
	}
	if p.limit, err = p.bound(); err != nil {
		return err
	}
	guess, err := p.settle(ctx)
	if err != nil {
		return err
	}
	same, err := p.inSameShape(ctx, guess)
	if err != nil {
		return err
	}
	pool := same
	if shape := unsplit(same.shape); shape != same.shape {
		if pool, err = p.inOnePool(ctx, shape, same.capacity); err != nil {
			return err
		}
	}
	p.same, p.pool = same, pool
	return nil
}

// inSameShape finds the best rivals in the ground's shape.
func (p *Player) inSameShape(ctx context.Context, guess float64) (*contest, error) {
	c := &contest{shape: p.ground.Shape}
	var err error
	if c.forms, err = p.tune(ctx, &p.usual, c.shape, guess); err != nil {
		return nil, err
	}
	if err := p.contest(ctx, c, guess); err != nil {
		return nil, err
	}
	enough, err := p.haveEnough(ctx, c.shape, guess)
	if err != nil {
		return nil, err
	}
	return c, p.outdo(ctx, c, enough)
}

// inOnePool finds the best rivals in one pool.
func (p *Player) inOnePool(ctx context.Context, shape string, guess float64) (*contest, error) {
	c := &contest{shape: shape}
	forms, err := p.tune(ctx, &p.usual, shape, guess)
	if err != nil {
		return nil, err
	}
	c.forms = forms[:1]
	if err := p.contest(ctx, c, guess); err != nil {
		return nil, err
	}
	return c, p.outdo(ctx, c, inOne)
}

// cell judges all policies at one load.
func (p *Player) cell(ctx context.Context, share float64) (*Line, error) {
	g := p.ground
	l := &Line{
		Cell: g.Cell(share), Kind: g.Kind, Blind: g.Blind, Shape: g.Shape, Cache: g.Cache, Step: g.Step,
		Share: share, Load: share * p.same.capacity, Seed: p.Seed, Model: p.Model(),
	}
	mine, err := p.play(ctx, g.Shape, ours, l.Load, 0)
	if err != nil {
		return nil, err
	}
	rival, err := p.best(ctx, p.same, l.Load)
	if err != nil {
		return nil, err
	}
	pool, err := p.best(ctx, p.pool, l.Load)
	if err != nil {
		return nil, err
	}
	l.Ours = mine.Figures
	l.Rival = rival.Figures
	l.Unsplit = pool.Figures
	l.Windows = &Trio{Ours: mine.Windows, Rival: rival.Windows, Unsplit: pool.Windows}
	return l, nil
}

// best is the form of a contest with the most good answers at a load.
func (p *Player) best(ctx context.Context, c *contest, load float64) (best *Played, err error) {
	for _, form := range c.forms {
		x, err := p.play(ctx, c.shape, form, load, 0)
		if err != nil {
			return nil, err
		}
		if best == nil || x.Usual > best.Usual {
			best = x
		}
	}
	return best, nil
}

// contest finds the capacity of the best form.
func (p *Player) contest(ctx context.Context, c *contest, guess float64) error {
	for _, form := range c.forms {
		load, err := p.search(ctx, &p.usual, c.shape, form, guess, 0, anew)
		if err != nil {
			return err
		}
		if load > c.capacity {
			c.form, c.capacity = form, load
		}
	}
	return nil
}

// settle finds the good answers of an idle fleet, and the approximate capacity of a plain rival.
func (p *Player) settle(ctx context.Context) (float64, error) {
	form := inOne[0]
	if unsplit(p.ground.Shape) != p.ground.Shape {
		form += firstOf[1]
	}
	guess := p.limit / 2
	idle, err := p.play(ctx, p.ground.Shape, form, guess*idleLoad, tuning)
	if err != nil {
		return 0, err
	}
	if p.usual.enough = replay.Enough(goodShare, idle.Usual); p.usual.enough == 0 {
		return 0, fmt.Errorf("%.0f %% of the answers are good in an idle fleet: no load is within the goal",
			idle.Usual*100)
	}
	return p.search(ctx, &p.usual, p.ground.Shape, form, guess, tuning, rough)
}

// tune returns the forms that are best at a load. Its seed differs from the seeds that judge them.
func (p *Player) tune(ctx context.Context, g *goal, shape string, load float64) ([]string, error) {
	forms, err := p.field(ctx, g, shape, load)
	if err != nil {
		return nil, err
	}
	return p.rank(ctx, g, shape, load, forms, kept)
}

// field is all forms that are tried: in two pools the best policies with all rules.
func (p *Player) field(ctx context.Context, g *goal, shape string, load float64) ([]string, error) {
	if unsplit(shape) == shape {
		return inOne, nil
	}
	first, err := p.rank(ctx, g, shape, load, withRules(apart, firstOf), len(apart)*len(firstOf))
	if err != nil {
		return nil, err
	}
	return withRules(contenders(first, kept), p.Rules), nil
}

// contenders are the n best policies of some forms with any rule, the best first. A policy that appears with
// two weights counts once, but both forms are returned.
func contenders(forms []string, n int) []string {
	var names []string
	different := map[string]bool{}
	for _, form := range forms {
		name := policies.WithoutLocal(form)
		if policy, _, _ := strings.Cut(name, ":"); !slices.Contains(names, name) {
			names, different[policy] = append(names, name), true
		}
		if len(different) == n {
			break
		}
	}
	return names
}

// withRules is every policy with every rule.
func withRules(names, rules []string) []string {
	var forms []string
	for _, name := range names {
		for _, rule := range rules {
			forms = append(forms, name+rule)
		}
	}
	return forms
}

// rank sorts forms by their good answers and then by their time to first token, and keeps the first n.
func (p *Player) rank(
	ctx context.Context, g *goal, shape string, load float64, forms []string, n int,
) ([]string, error) {
	type result struct {
		form       string
		good, wait float64
	}
	var all []result
	for _, form := range forms {
		x, err := p.play(ctx, shape, form, load, tuning)
		if err != nil {
			return nil, err
		}
		all = append(all, result{form, g.good(&x.Figures), x.TTFT})
	}
	slices.SortStableFunc(all, func(a, b result) int {
		return cmp.Or(cmp.Compare(b.good, a.good), cmp.Compare(a.wait, b.wait))
	})
	var out []string
	for _, r := range all[:min(n, len(all))] {
		out = append(out, r.form)
	}
	return out, nil
}
