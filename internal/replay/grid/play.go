package grid

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"tandem/internal/replay"
	"tandem/internal/replay/policies"
	"tandem/internal/trace"
)

// Options of [Run].
type Options struct {
	Traces   string // folder of the recorded kinds' files
	Seed     uint64
	Requests int // that a play has, about; more where answers are long
	Shortest time.Duration
	Rules    []string // by which rivals may prefill where they decode; [policies.Locals]
	Progress func(string)
}

// The measures of a search. A capacity is bracketed in steps, halved, and then read off a line.
const (
	goodShare    = 0.9
	ofIdle       = 0.95 // of what an idle fleet has, where that is less than goodShare
	hopeless     = 0.3  // of good answers in an idle fleet: the goal is not for such traffic
	searchStep   = 1.35
	searchHalves = 2
	searchSteps  = 12
	idleLoad     = 0.1 // of the guess
)

// Fair rivals: in two pools each with a rule that lets it prefill where it decodes, and in one pool.
var (
	apart = []string{"dynamo:credit=1.5", "dynamo:credit=3", "lmetric", "kv-aware"}
	inOne = []string{
		"lmetric", "dynamo-mixed", "dynamo-mixed:credit=3", "llm-d:local=0", "least-tokens", "round-robin",
	}
	firstOf = []string{"", "+local:k=2"} // rules with which every policy is tried
)

// kept is how many policies are tried with all rules, and how many forms are judged.
const kept = 2

// ours is the decision that is audited, with its defaults.
const ours = "tandem"

// player plays one ground.
type player struct {
	Options
	ground *Ground
	kind   trace.Kind
	base   replay.Play
	enough float64
	played map[played]*replay.Outcome
}

// played names a play of a ground.
type played struct {
	shape, form string
	load        float64
	seed        uint64
}

// Run plays a ground and returns its cells.
func Run(ctx context.Context, g *Ground, o Options) ([]Line, error) {
	began := time.Now()
	kind, err := trace.FindKind(g.Kind)
	if err != nil {
		return nil, err
	}
	if o.Rules == nil {
		o.Rules = policies.Locals()
	}
	p := &player{Options: o, ground: g, kind: kind, played: map[played]*replay.Outcome{}}
	p.base, err = replay.Play{
		Cluster: g.Shape, Profile: "70b", Cache: g.Cache, Step: g.Step, Traces: o.Traces, Seed: g.seed(o.Seed),
		EventLag: 100 * time.Millisecond, Poll: time.Second,
	}.OfKind(g.Kind)
	if err != nil {
		return nil, err
	}
	lines, err := p.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", g.Name(), err)
	}
	for i := range lines {
		lines[i].Seconds = time.Since(began).Seconds()
	}
	return lines, nil
}

// contest is the best of several policies in one shape.
type contest struct {
	shape    string
	forms    []string // best first
	capacity float64
}

func (p *player) run(ctx context.Context) ([]Line, error) {
	limit, err := p.bound()
	if err != nil {
		return nil, err
	}
	guess, err := p.settle(ctx, limit)
	if err != nil {
		return nil, err
	}
	same := contest{shape: p.ground.Shape}
	if same.forms, err = p.tune(ctx, same.shape, guess); err != nil {
		return nil, err
	}
	if err := p.contest(ctx, &same, guess); err != nil {
		return nil, err
	}
	pool := contest{shape: unsplit(p.ground.Shape)}
	if pool.shape == same.shape {
		pool = same
	} else {
		if pool.forms, err = p.tune(ctx, pool.shape, same.capacity); err != nil {
			return nil, err
		}
		pool.forms = pool.forms[:1]
		if err := p.contest(ctx, &pool, same.capacity); err != nil {
			return nil, err
		}
	}
	mine, err := p.capacity(ctx, same.shape, ours, same.capacity)
	if err != nil {
		return nil, err
	}
	var lines []Line
	for _, share := range p.ground.Shares {
		l, err := p.cell(ctx, share, &same, &pool)
		if err != nil {
			return nil, err
		}
		l.Bound, l.Enough = limit, p.enough
		l.Capacity = Capacities{Ours: mine, Rival: same.capacity, Unsplit: pool.capacity}
		lines = append(lines, *l)
	}
	return lines, nil
}

// cell judges all at one load.
func (p *player) cell(ctx context.Context, share float64, same, pool *contest) (*Line, error) {
	g := p.ground
	l := &Line{
		Cell: g.Cell(share), Kind: g.Kind, Blind: g.Blind, Shape: g.Shape, Cache: g.Cache, Step: g.Step,
		Share: share, Load: share * same.capacity, Seed: p.Seed,
	}
	mine, err := p.play(ctx, g.Shape, ours, l.Load, 0)
	if err != nil {
		return nil, err
	}
	l.Ours = figures(mine)
	if l.Rival, err = p.best(ctx, same, l.Load); err != nil {
		return nil, err
	}
	l.Unsplit, err = p.best(ctx, pool, l.Load)
	return l, err
}

// best is the form of a contest that has the most good answers at a load.
func (p *player) best(ctx context.Context, c *contest, load float64) (best Figures, err error) {
	for i, form := range c.forms {
		o, err := p.play(ctx, c.shape, form, load, 0)
		if err != nil {
			return best, err
		}
		if f := figures(o); i == 0 || f.Usual > best.Usual {
			best = f
		}
	}
	return best, nil
}

// contest finds the capacity of the best form.
func (p *player) contest(ctx context.Context, c *contest, guess float64) error {
	for _, form := range c.forms {
		load, err := p.capacity(ctx, c.shape, form, guess)
		if err != nil {
			return err
		}
		c.capacity = max(c.capacity, load)
	}
	return nil
}

// bound is the load that no policy passes.
func (p *player) bound() (float64, error) {
	at := p.base
	at.For = measured
	x, err := at.Ideal()
	if err != nil {
		return 0, err
	}
	return x.TotalCapacity(replicas(p.ground.Shape)), nil
}

// settle finds about what load a plain rival holds, and what an idle fleet can do at all.
func (p *player) settle(ctx context.Context, limit float64) (float64, error) {
	form := inOne[0]
	if unsplit(p.ground.Shape) != p.ground.Shape {
		form += firstOf[1]
	}
	guess := limit / 2
	idle, err := p.play(ctx, p.ground.Shape, form, guess*idleLoad, replay.DevSeed)
	if err != nil {
		return 0, err
	}
	if p.enough = min(goodShare, ofIdle*idle.Usual); idle.Usual < hopeless {
		return 0, fmt.Errorf("%.0f %% of the answers are good in an idle fleet: no load is within the goal",
			idle.Usual*100)
	}
	return p.search(ctx, p.ground.Shape, form, guess, replay.DevSeed, 0)
}

// tune returns the forms that are best at a load, with another seed than they are judged with.
func (p *player) tune(ctx context.Context, shape string, load float64) ([]string, error) {
	if unsplit(shape) == shape {
		return p.rank(ctx, shape, load, inOne, kept)
	}
	var forms []string
	for _, name := range apart {
		for _, rule := range firstOf {
			forms = append(forms, name+rule)
		}
	}
	first, err := p.rank(ctx, shape, load, forms, len(forms))
	if err != nil {
		return nil, err
	}
	var names []string // of the best policies, whatever their rules
	for _, form := range first {
		if name := policies.WithoutLocal(form); !slices.Contains(names, name) && len(names) < kept {
			names = append(names, name)
		}
	}
	forms = nil
	for _, name := range names {
		for _, rule := range p.Rules {
			forms = append(forms, name+rule)
		}
	}
	return p.rank(ctx, shape, load, forms, kept)
}

// rank sorts forms by their good answers and then by their time to first token, and keeps the first n.
func (p *player) rank(
	ctx context.Context, shape string, load float64, forms []string, n int,
) ([]string, error) {
	type result struct {
		form       string
		good, wait float64
	}
	var all []result
	for _, form := range forms {
		o, err := p.play(ctx, shape, form, load, replay.DevSeed)
		if err != nil {
			return nil, err
		}
		all = append(all, result{form, o.Usual, replay.Loss(o)})
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

// capacity is the largest load with enough good answers.
func (p *player) capacity(ctx context.Context, shape, form string, guess float64) (float64, error) {
	return p.search(ctx, shape, form, guess, 0, searchHalves)
}

// try is one play of a search.
type try struct{ load, good float64 }

// search brackets a capacity, halves the bracket and reads the rest off a line.
func (p *player) search(
	ctx context.Context, shape, form string, load float64, seed uint64, halves int,
) (float64, error) {
	var below, above *try
	step := func(load float64) error {
		o, err := p.play(ctx, shape, form, load, seed)
		if err != nil {
			return err
		}
		if t := (&try{load, o.Usual}); o.Usual >= p.enough {
			below = t
		} else {
			above = t
		}
		return nil
	}
	for range searchSteps {
		if err := step(load); err != nil {
			return 0, err
		}
		if below != nil && above != nil {
			break
		}
		if below != nil {
			load *= searchStep
		} else {
			load /= searchStep
		}
	}
	switch {
	case below == nil:
		return 0, fmt.Errorf("%s: not enough good answers even at a load of %.3g", form, above.load)
	case above == nil:
		return below.load, nil
	}
	for range halves {
		if err := step(math.Sqrt(below.load * above.load)); err != nil {
			return 0, err
		}
	}
	return p.cross(below, above), nil
}

// cross is where the line through two plays has just enough.
func (p *player) cross(below, above *try) float64 {
	if below.good <= above.good {
		return below.load
	}
	return below.load + (above.load-below.load)*(below.good-p.enough)/(below.good-above.good)
}

// play plays a policy at a load, once.
func (p *player) play(
	ctx context.Context, shape, form string, load float64, seed uint64,
) (*replay.Outcome, error) {
	key := played{shape, form, load, seed}
	if o := p.played[key]; o != nil {
		return o, nil
	}
	at := p.base
	at.Cluster, at.Scale = shape, load
	at.For = p.span(load)
	at.Seed += seed
	o, _, err := at.Once(ctx, form)
	if err != nil {
		return nil, err
	}
	p.played[key] = o
	if p.Progress != nil {
		p.Progress(fmt.Sprintf("%s play %d: %s %s load %.3g: good %.1f %%, tight %.1f %%, TTFT %.3g s, "+
			"gaps above 0.2 s %.0f %%, above 1 s %.1f %%, local %.0f %% (%.1f s)", p.ground.Name(), len(p.played),
			shape, o.Policy, load, o.Usual*100, o.Tight*100, o.TTFT.Mean, o.Halting*100, o.Stuck*100,
			o.Local*100, o.Seconds))
	}
	return o, nil
}

// The measures of a play.
const (
	measured  = 10 * time.Minute // for the bound
	longest   = 20 * time.Minute // in which sessions start
	inARow    = 3                // answers, for which there is time
	aToken    = 30 * time.Millisecond
	loopCalls = 30 // that a closed loop has, about
)

// span is the time in which sessions start: as many as wanted, and long enough for answers to pile up.
func (p *player) span(load float64) time.Duration {
	rate := p.kind.Rate * load
	if p.kind.Loops {
		rate *= loopCalls
	}
	answer := max(p.kind.Composed.Answer, p.kind.Recorded.Answers[1])
	least := max(p.Shortest, inARow*time.Duration(answer)*aToken)
	return min(longest, max(least, time.Duration(float64(p.Requests)/rate*float64(time.Second))))
}
