package ablate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/internal/lab/replay/grid"
	"github.com/tandem-router/tandem/internal/lab/trace"
)

// Cell is one fleet with one traffic.
type Cell struct {
	grid.Fleet
	Special
}

// Special is what is unusual about a cell.
type Special struct {
	Misstate  string // see [cluster.ParseMisstated]
	Troubles  string // see [cluster.ParseTroubles]
	Sequences int    // most sequences that an engine runs at a time; 0: vLLM's default
}

// Name names the cell.
func (c *Cell) Name() string {
	parts := []string{c.Fleet.Name(), fmt.Sprint(c.Load)}
	if c.Sequences > 0 {
		parts = append(parts, fmt.Sprintf("max-num-seqs=%d", c.Sequences))
	}
	parts = append(parts, c.Misstate, c.Troubles)
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "/")
}

// Blind reports whether no constant was chosen on the cell's kind of traffic.
func (c *Cell) Blind() bool { return blindKind(c.Kind) }

func blindKind(name string) bool {
	k, err := trace.FindKind(name)
	return err == nil && k.Blind
}

// NamedCells returns the cells of the panel as [Named] does.
func NamedCells(texts []string) (found []Cell, unknown string) {
	return replay.Named(Panel(), texts, func(c *Cell) []string { return []string{c.Name()} })
}

// Panel returns the cells of the ablation. Half of the cells have blind kinds of traffic. The loads are
// about 0.85 of the best rival's capacity in the same fleet, by the plays of the grid (docs/data).
//
// Long: one row per cell.
func Panel() []Cell {
	none := Special{}
	cell := func(kind, shape string, cache float64, step int, link, load float64, special Special) Cell {
		return Cell{grid.FleetOf(kind, shape, cache, step, link, load), special}
	}
	return []Cell{
		cell("conversation", "8P8D", 4, 8192, 40, 3, none),
		cell("conversation", "8D", 1, 8192, 40, 0.55, none),
		cell("conversation-bursts", "4D", 1, 8192, 40, 0.22, none),
		cell("agents", "4P2D", 4, 1024, 40, 12, none),
		cell("agents", "4D", 1, 2048, 40, 1.1, none),
		cell("azure-chat", "2P2D", 4, 1024, 40, 8, none),
		cell("azure-chat", "4P2D", 4, 1024, 8, 8, none),
		cell("azure-short", "4P1D", 4, 8192, 40, 11.5, none),
		cell("extract-bursts", "6P2D", 4, 8192, 40, 42, none),
		cell("extract-bursts", "3P1D", 4, 1024, 8, 6, none),
		cell("answers4-long-some-ticks", "8P8D", 4, 8192, 8, 18, none),
		cell("answers28-short-most-ticks", "4D", 1, 8192, 40, 480, none),
		cell("answers28-long-most-ticks", "2P2D", 4, 1024, 40, 15, none),
		cell("answers300-short-most-bursts", "16D", 1, 2048, 40, 300, none),
		cell("answers300-long-some-bursts", "4P2D", 4, 8192, 40, 3.4, none),
		cell("answers3000-short-most-poisson", "6P2D", 4, 8192, 40, 3.6, none),
		cell("answers4-short-most-poisson", "4P2D", 1, 2048, 8, 400, Special{Misstate: "links=10"}),
		cell("extract-bursts", "6P2D", 4, 8192, 40, 39, Special{Misstate: "routers=4"}),

		cell("conversation-late", "3P1D", 1, 8192, 40, 0.45, none),
		cell("conversation-late", "4P4D", 1, 8192, 4, 0.7, none),
		cell("conversation-unshared", "6P2D", 1, 2048, 40, 1.2, none),
		cell("conversation-unshared", "2P2D", 4, 8192, 8, 0.38, none),
		cell("azure-bursts", "12P4D", 1, 8192, 40, 23, none),
		cell("azure-28", "8P8D", 4, 1024, 40, 28, none),
		cell("azure-28", "4P2D+4P1D@1", 4, 8192, 40, 14, none),
		cell("azure-reasoning", "3P1D", 1, 2048, 40, 0.2, none),
		cell("answers4-long-most-poisson", "8D", 1, 8192, 40, 26, none),
		cell("answers28-short-most-poisson", "4P2D", 1, 1024, 8, 400, none),
		cell("answers28-long-some-ticks", "12P4D", 1, 2048, 8, 11.5, none),
		cell("answers300-short-most-ticks", "4P1D", 1, 1024, 40, 22, none),
		cell("answers300-long-most-bursts", "4P4D", 1, 8192, 40, 12.5, none),
		cell("answers3000-short-none-ticks", "2P2D", 1, 2048, 40, 2.3, none),
		cell("answers3000-long-some-ticks", "4P1D", 1, 8192, 40, 0.3, none),
		cell("conversation-late", "4P4D", 4, 8192, 40, 1.5, Special{Misstate: "ids=none"}),
		cell("answers300-long-most-bursts", "4P4D", 1, 8192, 40, 8.1, Special{Misstate: "speed=2"}),
		cell("azure-28", "8P8D", 4, 1024, 8, 28, Special{Misstate: "links=0.1"}),

		// Cells for single mechanisms: engines that run few sequences, or as many as they may; forty prompts with
		// one prefix; a prefill replica that stops responding; decode replicas of different speed.
		cell("answers300-short-most-ticks", "4P2D", 4, 1024, 40, 75, none),
		cell("answers300-short-most-ticks", "4P2D", 4, 1024, 40, 22, Special{Sequences: 64}),
		cell("answers300-short-most-bursts", "8D", 1, 2048, 40, 60, Special{Sequences: 64}),
		cell("answers3000-long-most-poisson", "8D", 1, 8192, 40, 4.9, none),
		cell("conversation-late", "4P4D", 4, 8192, 40, 1.1, Special{Troubles: "p0:slow=100@12s+20s"}),
		cell("azure-chat", "2P2D", 4, 1024, 40, 5, Special{Troubles: "p0:slow=1000@12s+60s"}),
		cell("extract-bursts", "6P2D", 4, 8192, 40, 25, Special{Troubles: "p0:slow=1000@12s+60s"}),
		cell("azure-chat", "4P2D", 4, 1024, 40, 7, Special{Troubles: "p0:slow=100@12s+20s"}),
		cell("conversation-late", "4P2D2~0.5D", 4, 8192, 40, 1.2, none),
		cell("conversation", "4P4D4~0.5D", 4, 8192, 40, 2, none),
		cell("azure-chat", "2P2D2~0.5D", 4, 1024, 40, 9, none),
		cell("answers3000-short-none-ticks", "2P1D2~0.5D", 1, 2048, 40, 2, none),
		cell("answers300-long-most-bursts", "4P2D2~0.5D", 1, 8192, 40, 9, none),
	}
}

// The lengths of a play.
const (
	inARow   = 2 // a play has time for this number of successive answers
	aToken   = 30 * time.Millisecond
	shortest = 6 * time.Second
	longest  = 10 * time.Minute
	requests = 2000 // approximate maximum
)

// play returns a play of the cell of about this length. It is shorter if the cell has many requests, and
// longer if answers are long.
func (c *Cell) play(o *Options) (replay.Play, error) {
	k, err := trace.FindKind(c.Kind)
	if err != nil {
		return replay.Play{}, err
	}
	p := replay.Play{
		Cluster: c.Shape, Profile: "70b", Cache: c.Cache, Step: c.Step, Link: c.Link, Scale: c.Load,
		Sequences: c.Sequences, Troubles: c.Troubles, Traces: o.Traces, Seed: seed,
		EventLag: 100 * time.Millisecond, Poll: time.Second, Links: "shared", Host: "measured",
	}
	if p.Misstated, err = cluster.ParseMisstated(c.Misstate); err != nil {
		return p, err
	}
	most := max(shortest, time.Duration(requests/(k.Rate*c.Load)*float64(time.Second)))
	answer := cmp.Or(k.Recorded.Answers[1], k.Composed.Answer)
	p.For = min(most, longest, max(o.For, inARow*time.Duration(answer)*aToken))
	return p.OfKind(c.Kind)
}

// seed is the seed of the traffic.
const seed = 9000
