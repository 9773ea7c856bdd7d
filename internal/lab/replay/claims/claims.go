package claims

import (
	"context"
	"fmt"
	"time"
)

// claim is a statement about Tandem's decision, with the way to check it.
type claim struct {
	name    string
	how     string // one sentence
	target  float64
	bound   Bound
	measure func(ctx context.Context, l *lab) (Estimate, error)
}

func (c *claim) line(e Estimate) Line {
	return Line{
		Name: c.name, Value: e.Value, Low: e.Low, High: e.High, Target: c.target,
		Holds: c.bound.met(e.Value, c.target), How: c.how, Bound: c.bound, Note: e.Note,
	}
}

// The policies by name. The blind policy chooses the prefill replica by its cache and the decode replica by
// the number of requests, like the most used router.
const (
	ours       = "tandem"
	split      = "tandem-split"
	roundRobin = "round-robin"
	sticky     = "session-sticky"
	blind      = "kv-aware"
	bySeconds  = blind + "+local:k=2"
	shared     = "tandem:share=0.1" // several routers share bookings every 100 ms
	limited    = "tandem:limit=5"   // refuses a request if its first token would come later than the SLO allows
)

// cell is a fleet, a cache and a workload at a load.
type cell struct {
	Workload Workload
	Cluster  string
	Cache    float64
	Load     float64
}

func (c cell) String() string { return fmt.Sprintf("%v/%s/cache%g", c.Workload, c.Cluster, c.Cache) }

// setting is a play of c with a router that knows as much as in a usual deployment.
func (c cell) setting(policy string) Setting {
	s := Setting{
		Workload: c.Workload, Cluster: c.Cluster, Cache: c.Cache, Load: c.Load, Span: 20 * time.Minute,
		Policy:   policy,
		EventLag: 100 * time.Millisecond, Poll: time.Second,
	}
	if c.Workload == Agents {
		s.Span = time.Duration(float64(15*time.Minute) * agentRate / c.Load)
	}
	return s
}

// agentRate is the rate of agents' sessions per second. After a quarter of an hour all 158 fitting sessions
// have started.
const agentRate = 0.25

// compare plays two settings and compares a figure of the same requests.
func (l *lab) compare(
	ctx context.Context, f figure, with func(a, b float64) float64, a, b Setting,
) (Estimate, error) {
	ra, err := l.once(ctx, a)
	if err != nil {
		return Estimate{}, err
	}
	rb, err := l.once(ctx, b)
	if err != nil {
		return Estimate{}, err
	}
	e := compare(f, ra, rb, with)
	e.Note = fmt.Sprintf("load %.3g: %.3g against %.3g", a.Load, value(f, ra), value(f, rb))
	return e, nil
}

// excess is the share by which a is above b.
func excess(a, b float64) float64 { return -reduction(a, b) }
