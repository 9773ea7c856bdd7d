package grid

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// Fleet is a ground with links of one speed, at one load.
type Fleet struct {
	Ground
	Link float64 // GB/s between engines
	Load float64 // see [trace.Kind]
}

// FleetOf makes a fleet.
func FleetOf(kind, shape string, cache float64, step int, link, load float64) Fleet {
	return Fleet{Ground{Kind: kind, Shape: shape, Cache: cache, Step: step}, link, load}
}

// Fleets are the fleets with wrong facts: recorded and composed traffic, with fast links and with slow links,
// for which a wrong speed matters most. The loads are about 0.8 of the best tuned rival's capacity with true
// facts.
func Fleets() []Fleet {
	return []Fleet{
		FleetOf("azure-short", "4P1D", 4, 8192, 40, 10.9),
		FleetOf("conversation-late", "3P1D", 1, 8192, 40, 0.488),
		FleetOf("answers300-long-some-bursts", "4P2D", 4, 8192, 40, 3.34),
		FleetOf("extract-bursts", "6P2D", 4, 8192, 40, 39),
		FleetOf("conversation-late", "4P4D", 4, 8192, 40, 1.5),
		FleetOf("answers300-long-most-bursts", "4P4D", 1, 8192, 40, 8.1),
		FleetOf("conversation", "8P8D", 4, 8192, 40, 3),
		FleetOf("answers4-short-most-poisson", "4P2D", 1, 2048, 8, 250),
		FleetOf("extract-bursts", "6P2D", 1, 8192, 8, 10),
		FleetOf("conversation-late", "4P4D", 1, 8192, 4, 0.7),
	}
}

// Name names the fleet.
func (f *Fleet) Name() string { return fmt.Sprintf("%s/link%g", f.Ground.Name(), f.Link) }

// Misstatements are the wrong facts for each fleet, in the form of `--misstate`; the first is the truth.
var Misstatements = []string{
	"", "links=10", "links=0.1", "speed=2", "speed=0.5", "ids=none", "routers=4", "routers=4@1s",
}

// Rivals with usual weights. The first group compares a local prefill with a pair in seconds, so it gets the
// speeds of links and engines. The second group counts only tokens, so these speeds do not matter.
var (
	knowing  = []string{"kv-aware+local:k=2", "dynamo:credit=1.5+local:k=2", "lmetric+local:k=2"}
	carefree = []string{"kv-aware+local", "dynamo:credit=1.5+local", "lmetric+local"}
)

// Facts are a fleet that has been played with each of [Misstatements].
type Facts struct {
	Fleet string  `json:"fleet"`
	Load  float64 `json:"load"`
	Model string  `json:"model,omitzero"` // see [Options.Model]; the links are the fleet's
	Told  []Told  `json:"told"`
}

// Told is the result of one misstatement. Rivals are the best of some forms with the same wrong facts.
type Told struct {
	Misstate string  `json:"misstate"`
	Ours     Figures `json:"ours"`
	Knowing  Figures `json:"knowing"`  // the best rival that uses the speeds of links and engines
	Careless Figures `json:"careless"` // the best rival that does not
}

// WithoutLink is [Options.Model] without the speed of links.
func (o *Options) WithoutLink() string {
	x := *o
	x.Link = 0
	return x.Model()
}

// Facts plays f with each of [Misstatements]. The player is of its ground and its links.
func (p *Player) Facts(ctx context.Context, f *Fleet) (*Facts, error) {
	all := &Facts{Fleet: f.Name(), Load: f.Load, Model: p.WithoutLink()}
	for _, misstate := range Misstatements {
		t, err := p.told(ctx, misstate, f.Load)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		all.Told = append(all.Told, *t)
	}
	return all, nil
}

// told plays everything by which one misstatement is judged.
func (p *Player) told(ctx context.Context, misstate string, load float64) (*Told, error) {
	t := &Told{Misstate: misstate}
	for _, side := range []struct {
		figures  *Figures
		forms    []string
		misstate string
	}{
		{&t.Ours, []string{ours}, misstate},
		{&t.Knowing, knowing, untold(misstate)},
		{&t.Careless, carefree, careless(untold(misstate))},
	} {
		var err error
		if p.base.Misstated, err = cluster.ParseMisstated(side.misstate); err != nil {
			return nil, err
		}
		best, err := p.best(ctx, &contest{shape: p.ground.Shape, forms: side.forms}, load)
		if err != nil {
			return nil, err
		}
		*side.figures = best.Figures
	}
	return t, nil
}

// untold is the misstatement for rivals: their routers share nothing.
func untold(misstate string) string {
	routers, _, _ := strings.Cut(misstate, "@")
	return routers
}

// careless is the misstatement for rivals that ignore the speeds of links and engines.
func careless(misstate string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(misstate, ","), func(fact string) bool {
		return strings.HasPrefix(fact, "links=") || strings.HasPrefix(fact, "speed=")
	}), ",")
}
