package suite

import (
	"context"
	"fmt"
	"time"
)

// claim is something that is said of Tandem's decision, and how to find out.
type claim struct {
	name    string
	how     string // one sentence
	target  float64
	bound   Bound
	measure func(ctx context.Context, l *lab) (Estimate, error)
}

func (c *claim) line(e Estimate) Line {
	return Line{
		Name: c.name, Value: e.Value, Low: e.Low, High: e.High, Target: c.target, Holds: c.bound.met(e.Value, c.target), How: c.how, Bound: c.bound, Note: e.Note,
	}
}

// ours is the policy that the claims are about.
const ours = "tandem"

// cell is a cluster, a cache and a workload at a load.
type cell struct {
	Workload Workload
	Cluster  string
	Cache    float64
	Load     float64
}

func (c cell) String() string { return fmt.Sprintf("%v/%s/cache%g", c.Workload, c.Cluster, c.Cache) }

// setting plays c with what the router sees in a usual deployment.
func (c cell) setting(policy string) Setting {
	s := Setting{
		Workload: c.Workload, Cluster: c.Cluster, Cache: c.Cache, Load: c.Load, Span: 20 * time.Minute, Policy: policy,
		EventLag: 100 * time.Millisecond, Poll: time.Second,
	}
	if c.Workload == Agents {
		s.Span = 40 * time.Minute
	}
	return s
}

// seedsFull is how many seeds a claim of the full suite is played with.
const seedsFull = 5

// claims lists those of the full suite.
func claims() []claim {
	var all []claim
	for _, c := range roundRobinCells() {
		all = append(all, beside(c, "round-robin", "ttft_mean", meanTTFT, 0.70), beside(c, "round-robin", "ttft_p50", p50TTFT, 0.70),
			beside(c, "round-robin", "ttft_p99", p99TTFT, 0.75))
	}
	return all
}

// roundRobinCells are the loads that round-robin still completes.
func roundRobinCells() []cell {
	return []cell{
		{Conversation, "8P8D", 1, 1.0}, {Conversation, "8P8D", 4, 1.0}, {Conversation, "4P4D", 1, 0.5}, {Conversation, "4P4D", 4, 0.5},
		{Agents, "8P8D", 1, 0.035}, {Agents, "8P8D", 4, 0.035}, {Agents, "4P4D", 1, 0.0175}, {Agents, "4P4D", 4, 0.0175},
	}
}

// beside claims by which share a figure of ours is below another policy's at least.
func beside(c cell, other, what string, f figure, target float64) claim {
	return claim{
		name: fmt.Sprintf("%s_below_%s/%v", what, other, c), target: target, bound: AtLeast,
		how: fmt.Sprintf("1 - %s of %s / that of %s, the same requests, load %g", what, ours, other, c.Load),
		measure: func(ctx context.Context, l *lab) (Estimate, error) {
			a, b, err := l.two(ctx, c.setting(ours), c.setting(other), seedsFull)
			if err != nil {
				return Estimate{}, err
			}
			e := compare(f, a, b, reduction)
			e.Note = fmt.Sprintf("%.3g s against %.3g s", value(f, a), value(f, b))
			return e, nil
		},
	}
}

// two plays two settings with the same seeds.
func (l *lab) two(ctx context.Context, a, b Setting, n int) (ra, rb []*Trial, err error) {
	if ra, err = l.seeds(ctx, a, n); err != nil {
		return nil, nil, err
	}
	rb, err = l.seeds(ctx, b, n)
	return ra, rb, err
}

// quickClaims lists those of the quick suite: what must hold with a wide margin on short windows.
func quickClaims() []claim {
	return nil
}
