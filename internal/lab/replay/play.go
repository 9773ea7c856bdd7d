package replay

// Long: a play has many fields, and opens all files that they name.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/internal/lab/replay/policies"
)

// Play says what is played.
type Play struct {
	Trace    string        // file
	Kind     string        // kind of traffic instead of a file (see [Play.OfKind]); "" for the file
	Traces   string        // folder of the files of kinds
	Raw      bool          // keep Mooncake's ticks
	Cluster  string        // "8P8D", see [cluster.Shape], or a YAML file
	Profile  string        // of the presets of internal/lab/enginesim/core
	Cache    float64       // KV capacity, as a multiple of the GPUs' own
	Link     float64       // GB/s between engines; 0 for [UsualLink]
	Host     string        // model of the engines' CPU time, see [cluster.ParseHostTime]
	Links    string        // model of simultaneous transfers, see [cluster.ParseLinkModel]
	Scale    float64       // factor of the rate of arrivals
	Rate     float64       // sessions per second, if the trace has no start times, or with Arrivals
	Arrivals string        // file of ServeGen's rates, by which sessions start; "": as in the trace
	For      time.Duration // virtual time in which sessions start; 0: the whole trace
	MaxLen   int           // sessions with more tokens of prompt and answer are left out
	Stress   Stress
	Memory   float64 // host memory for KV, as a multiple of the GPUs' own; 0 for none
	Pulls    bool    // prefill engines can pull blocks from the host memory of other engines
	Troubles string  // failures of replicas, see [cluster.ParseTroubles]
	// Misstated has the wrong facts that routers get.
	Misstated cluster.Misstated
	Mix       *cluster.Mix // the classes and tenants of requests; nil: none
	Policies  []string
	Tuned     bool // also play each policy with the best value of its main parameter, see [Play.Dev]
	Seed      uint64
	Chance    uint64 // seed of the routers' random numbers and of their polls; the traffic stays the same
	EventLag  time.Duration
	Poll      time.Duration
	SLO       SLO
	Sequences int           // most sequences that an engine runs at a time, 0: vLLM's default
	Step      int           // most tokens of a decode replica's step, 0: vLLM's default
	Skip      time.Duration // part of a recorded kind that is left out at its beginning

	// Watch is called once per virtual second with the first router; may be nil.
	Watch func(at time.Duration, router cluster.Router)

	// Sessions makes the sessions to play instead of a file; nil for the file. Their times are scaled and cut
	// off as the times of a trace.
	Sessions func() cluster.Source
}

// SLO is the goal that a good answer keeps.
type SLO struct {
	TTFT time.Duration `json:"ttft"`
	TPOT time.Duration `json:"tpot"`
	Gap  time.Duration `json:"gap,omitzero"` // the longest between two tokens, 0 for any
}

// Two goals that every outcome reports besides its own: a goal that most users accept, and a goal at which
// text appears without visible pauses.
var (
	Usual = SLO{TTFT: 5 * time.Second, TPOT: 100 * time.Millisecond, Gap: time.Second}
	Tight = SLO{TTFT: 2 * time.Second, TPOT: 30 * time.Millisecond, Gap: 200 * time.Millisecond}
)

// Keeps reports whether an answer keeps the goal.
func (s SLO) Keeps(x *cluster.Record) bool {
	return !x.Refused && !x.Failed && x.TTFT <= s.TTFT && x.TPOT() <= s.TPOT.Seconds() &&
		(s.Gap == 0 || x.Gap <= s.Gap)
}

// OfIdle lowers the share of good answers that is enough: at most this part of an idle fleet's share.
const OfIdle = 0.95

// hopeless is the least share of good answers of an idle fleet. Below it the goal makes no sense for the
// traffic.
const hopeless = 0.3

// Enough returns the share of answers that must keep a goal for a fleet to hold a load: wanted, or [OfIdle]
// times idle if that is less. idle is the share of an idle fleet. The result is 0 if idle is too small for
// the goal.
func Enough(wanted, idle float64) float64 {
	if idle < hopeless {
		return 0
	}
	return min(wanted, OfIdle*idle)
}

// UsualLink is the default bandwidth between engines in GB/s.
const UsualLink = 40

// goal returns the goal of x: the goals of its class, or the goal of p.
func (p *Play) goal(x *cluster.Record) SLO {
	if c := p.Mix.Class(x.Session); c != nil {
		return SLO{TTFT: c.TTFT, TPOT: c.TPOT}
	}
	return p.SLO
}

func (p Play) withDefaults() Play {
	p.Cluster, p.Profile = cmp.Or(p.Cluster, "8P8D"), cmp.Or(p.Profile, "70b")
	p.Cache = cmp.Or(p.Cache, 1)
	p.Link = cmp.Or(p.Link, UsualLink)
	p.Scale = cmp.Or(p.Scale, 1)
	p.Rate = cmp.Or(p.Rate, 0.05)
	p.MaxLen = cmp.Or(p.MaxLen, 131_072)
	p.SLO.TTFT, p.SLO.TPOT = cmp.Or(p.SLO.TTFT, 5*time.Second), cmp.Or(p.SLO.TPOT, 100*time.Millisecond)
	if len(p.Policies) == 0 {
		p.Policies = []string{"tandem", "round-robin"}
	}
	return p
}

// Fleet makes the cluster of p.
func (p Play) Fleet() (cluster.Config, error) {
	p = p.withDefaults()
	d, err := describe(p.Cluster)
	if err != nil {
		return cluster.Config{}, err
	}
	c, err := d.Config(
		cluster.Base{
			Profile: p.Profile, Cache: p.Cache, Link: p.Link, MaxLen: p.MaxLen, Step: p.Step, Sequences: p.Sequences,
		},
	)
	if err != nil {
		return c, fmt.Errorf("cluster %s: %w", p.Cluster, err)
	}
	c.EventLag, c.Poll = p.EventLag, p.Poll
	c.Misstated, c.Mix = p.Misstated, p.Mix
	c.SetHostMemory(p.Memory, p.Pulls)
	if c.Host, err = cluster.ParseHostTime(p.Host); err != nil {
		return c, err
	}
	c.SetStepTime()
	if c.LinkModel, err = cluster.ParseLinkModel(p.Links); err != nil {
		return c, err
	}
	c.Routers = cmp.Or(p.Misstated.Routers, c.Routers)
	c.Troubles, err = cluster.ParseTroubles(p.Troubles)
	return c, err
}

// describe reads a cluster: a short form, or the name of a YAML file.
func describe(text string) (d cluster.Description, err error) {
	if ext := filepath.Ext(text); ext != ".yaml" && ext != ".yml" {
		return cluster.Shape(text)
	}
	f, err := os.Open(text)
	if err != nil {
		return d, fmt.Errorf("cluster: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return cluster.ReadDescription(f, text)
}

// Run plays the trace with each policy and returns a line for each.
func (p Play) Run(ctx context.Context, progress func(policy string, at time.Duration)) ([]Outcome, error) {
	p = p.withDefaults()
	fleet, err := p.Fleet()
	if err != nil {
		return nil, err
	}
	if err := p.CheckPolicies(fleet); err != nil {
		return nil, err
	}
	if p.Tuned {
		if p.Policies, err = p.withTuned(ctx, progress); err != nil {
			return nil, err
		}
	}
	var out []Outcome
	for _, name := range p.Policies {
		o, _, err := p.one(ctx, fleet, name, progress)
		if err != nil {
			return out, fmt.Errorf("policy %s: %w", name, err)
		}
		out = append(out, *o)
	}
	return out, nil
}

// CheckPolicies returns an error for the first unknown policy of p. Call it before a play begins.
func (p Play) CheckPolicies(fleet cluster.Config) error {
	for _, name := range p.Policies {
		if _, err := policies.New(name, fleet, p.Seed); err != nil {
			return err
		}
	}
	return nil
}

// Once plays the trace with one policy, and also returns the result of each request.
func (p Play) Once(ctx context.Context, policy string) (*Outcome, []cluster.Record, error) {
	p = p.withDefaults()
	fleet, err := p.Fleet()
	if err != nil {
		return nil, nil, err
	}
	o, r, err := p.one(ctx, fleet, policy, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("policy %s: %w", policy, err)
	}
	return o, r.Records, nil
}

func (p Play) one(
	ctx context.Context, fleet cluster.Config, name string, progress func(string, time.Duration),
) (o *Outcome, r *cluster.Result, err error) {
	routers := make([]cluster.Router, fleet.Routers)
	for i := range routers {
		if routers[i], err = policies.New(name, fleet, p.Seed+p.Chance+uint64(i)<<32); err != nil {
			return nil, nil, err
		}
	}
	source, err := p.open(fleet)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	fleet.Started = func(at time.Duration) {
		if progress != nil {
			progress(name, at)
		}
		if p.Watch != nil {
			p.Watch(at, routers[0])
		}
	}
	c, err := cluster.NewSeveral(fleet, routers, source, p.Seed+p.Chance)
	if err != nil {
		return nil, nil, err
	}
	began := time.Now()
	r, err = c.Run(ctx)
	if err != nil {
		return nil, nil, err
	}
	o = p.sum(name, r)
	o.LeftOut = source.left
	o.Seconds = time.Since(began).Seconds()
	o.Stats = policies.Sum(routers)
	return o, r, nil
}

// Span is the virtual time in which sessions start.
func (p Play) Span() (last time.Duration, err error) {
	p = p.withDefaults()
	if p.For > 0 {
		return p.For, nil
	}
	fleet, err := p.Fleet()
	if err != nil {
		return 0, err
	}
	s, err := p.open(fleet)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for {
		x, err := s.Next()
		if errors.Is(err, io.EOF) {
			return last, nil
		}
		if err != nil {
			return 0, err
		}
		last = max(last, x.At)
	}
}
