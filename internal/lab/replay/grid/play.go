package grid

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/internal/lab/replay/policies"
	"github.com/tandem-router/tandem/internal/lab/trace"
)

// Options of a [Player].
type Options struct {
	Traces   string // folder of the recorded kinds' files
	Seed     uint64
	Requests int // approximate requests of a play; more if answers are long
	Shortest time.Duration
	Host     string   // model of the engines' CPU time, see [replay.Play]
	Links    string   // model of simultaneous transfers, see [replay.Play]
	Link     float64  // GB/s between engines, 0 for [replay.UsualLink]
	Rules    []string // rules for local prefills of rivals; [policies.Locals]
	Plays    *Plays   // earlier plays; may be nil
	Progress func(string)
}

// Model names an unusual model of the fleet, "" for the usual. Plays of different models cannot be compared.
func (o *Options) Model() string {
	var parts []string
	if o.Links != "" && o.Links != "queue" {
		parts = append(parts, "links="+o.Links)
	}
	if o.Host != "" && o.Host != "profile" {
		parts = append(parts, "host="+o.Host)
	}
	if o.Link != 0 && o.Link != replay.UsualLink {
		parts = append(parts, fmt.Sprintf("link=%g", o.Link))
	}
	return strings.Join(parts, " ")
}

// ours is Tandem's decision with its defaults.
const ours = "tandem"

// Player plays the cells of one ground.
type Player struct {
	Options
	ground *Ground
	kind   trace.Kind
	base   replay.Play
	usual  goal
	tight  goal
	began  time.Time
	// Plays once; [simulated].
	simulate func(ctx context.Context, p *replay.Play, form string) (*Played, error)
	count    int // of plays
	// Filled by [Player.contests].
	same  *contest
	pool  *contest
	limit float64 // load that no policy can hold
}

// Played is the saved result of a play.
type Played struct {
	Figures
	Windows Windows `json:"windows"`
}

// NewPlayer makes a player of a ground.
func NewPlayer(g *Ground, o Options) (*Player, error) {
	kind, err := trace.FindKind(g.Kind)
	if err != nil {
		return nil, err
	}
	if o.Rules == nil {
		o.Rules = policies.Locals()
	}
	if o.Plays == nil {
		o.Plays = NewPlays()
	}
	p := &Player{Options: o, ground: g, kind: kind, began: time.Now(), simulate: simulated}
	p.usual = goal{good: func(f *Figures) float64 { return f.Usual }}
	p.tight = goal{good: func(f *Figures) float64 { return f.Tight }}
	p.base, err = replay.Play{
		Cluster: g.Shape, Profile: "70b", Cache: g.Cache, Step: g.Step, Traces: o.Traces, Seed: g.seed(o.Seed),
		EventLag: 100 * time.Millisecond, Poll: time.Second,
		Links: o.Links, Link: o.Link, Host: o.Host,
	}.OfKind(g.Kind)
	return p, err
}

// play plays a policy at a load, once. Seeds count from 1; [tuning] has its own seed.
func (p *Player) play(ctx context.Context, shape, form string, load float64, seed uint64) (*Played, error) {
	at := p.base
	at.Cluster, at.Scale = shape, load
	at.For = p.span(load)
	at.Seed += seed
	if seed != tuning {
		at.Skip = recordingWindow(int(seed)+1, p.kind.Free(time.Duration(load*float64(at.For))))
	}
	key := keyOf(&at, form, p.model())
	if x := p.Plays.find(key); x != nil {
		return x, nil
	}
	began := time.Now()
	x, err := p.simulate(ctx, &at, form)
	if err != nil {
		return nil, err
	}
	if err := p.Plays.keep(key, x); err != nil {
		return nil, err
	}
	p.count++
	if p.Progress != nil {
		p.Progress(fmt.Sprintf("%s play %d: %s %s load %.3g: good %.1f %%, tight %.1f %%, TTFT %.3g s, "+
			"gaps above 0.2 s %.0f %%, above 1 s %.1f %%, local %.0f %% (%.1f s)", p.ground.Name(), p.count,
			shape, form, load, x.Usual*100, x.Tight*100, x.TTFT, x.Halting*100, x.Stuck*100,
			x.Local*100, time.Since(began).Seconds()))
	}
	return x, nil
}

// model names how plays differ from the usual fleet with true facts.
func (p *Player) model() string {
	if p.base.Misstated == (cluster.Misstated{}) {
		return p.Model()
	}
	return fmt.Sprintf("%s misstated=%+v", p.Model(), p.base.Misstated)
}

// simulated plays p.
func simulated(ctx context.Context, p *replay.Play, form string) (*Played, error) {
	o, rs, err := p.Once(ctx, form)
	if err != nil {
		return nil, err
	}
	return &Played{Figures: figures(o), Windows: windows(rs)}, nil
}

// bound is the load that no policy can hold.
func (p *Player) bound() (float64, error) {
	at := p.base
	at.For = measured
	x, err := at.Ideal()
	if err != nil {
		return 0, err
	}
	return x.TotalCapacity(replicas(p.ground.Shape)), nil
}

// Lengths of a play.
const (
	measured  = 10 * time.Minute // for the bound
	longest   = 20 * time.Minute // in which sessions start
	inARow    = 3                // a play has time for this number of successive answers
	aToken    = 30 * time.Millisecond
	loopCalls = 30 // approximate calls of a closed loop
)

// span is the time in which sessions start: enough for the wanted sessions, and for answers to pile up.
func (p *Player) span(load float64) time.Duration {
	rate := p.kind.Rate * load
	if p.kind.Loops {
		rate *= loopCalls
	}
	answer := max(p.kind.Composed.Answer, p.kind.Recorded.Answers[1])
	least := max(p.Shortest, inARow*time.Duration(answer)*aToken)
	return min(longest, max(least, time.Duration(float64(p.Requests)/rate*float64(time.Second))))
}
