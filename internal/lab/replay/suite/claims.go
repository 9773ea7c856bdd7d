package suite

import (
	"context"
	"fmt"
	"slices"
	"strings"
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
		Name: c.name, Value: e.Value, Low: e.Low, High: e.High, Target: c.target,
		Holds: c.bound.met(e.Value, c.target), How: c.how, Bound: c.bound, Note: e.Note,
	}
}

// The policies by name. The blind one routes prefill by cache and decode by a count, as the most used router
// does.
const (
	ours       = "tandem"
	split      = "tandem-split"
	roundRobin = "round-robin"
	sticky     = "session-sticky"
	blind      = "kv-aware"
	bySeconds  = blind + "+local:k=2"
	shared     = "tandem:share=0.1" // several routers tell each other every 100 ms
	limited    = "tandem:limit=5"   // refuses whose first token would come later than the SLO allows
)

// many is how many seeds all comparisons are played with. In the conversation a seed changes the time within
// a tick and who wins a tie, in the agents' sessions when they start: most of an interval comes from the
// requests.
func (l *lab) many() int { return max(1, l.Seeds) }

// cell is a fleet, a cache and a workload at a load.
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
		Workload: c.Workload, Cluster: c.Cluster, Cache: c.Cache, Load: c.Load, Span: 20 * time.Minute,
		Policy:   policy,
		EventLag: 100 * time.Millisecond, Poll: time.Second,
	}
	if c.Workload == Agents {
		s.Span = time.Duration(float64(15*time.Minute) * agentRate / c.Load)
	}
	return s
}

// claims lists those of the full suite.
func claims() []claim {
	return slices.Concat(roundRobinClaims(), capacityClaims(), agentClaims(), affinityClaims(), staleClaims(),
		overloadClaims(), localClaims(), sequenceClaims(),
		oracleClaims(), pressureClaims(), transferClaims(), stressClaims(), failingClaims())
}

// agentRate is how many agents' sessions start a second. All 158 that fit have started after a quarter of an
// hour.
const agentRate = 0.25

// below claims by which share a figure of ours is below another policy's at least.
func below(c cell, other, what string, f figure, target float64) claim {
	return claim{
		name: fmt.Sprintf("%s_below_%s/%v", what, other, c), target: target, bound: AtLeast,
		how: fmt.Sprintf("1 - %s of %s / that of %s, the same requests, load %g", what, ours, other, c.Load),
		measure: func(ctx context.Context, l *lab) (Estimate, error) {
			return l.compare(ctx, f, reduction, c.setting(ours), c.setting(other), l.many())
		},
	}
}

// compare plays two settings and compares a figure of the same requests.
func (l *lab) compare(
	ctx context.Context, f figure, with func(a, b float64) float64, a, b Setting, seeds int,
) (Estimate, error) {
	ra, err := l.seeds(ctx, a, seeds)
	if err != nil {
		return Estimate{}, err
	}
	rb, err := l.seeds(ctx, b, seeds)
	if err != nil {
		return Estimate{}, err
	}
	e := compare(f, ra, rb, with)
	e.Note = fmt.Sprintf("load %.3g: %.3g against %.3g", a.Load, value(f, ra), value(f, rb)) +
		bySeed(f, ra, rb)
	return e, nil
}

// bySeed tells what is behind a figure over several seeds: its median, and in how many plays a policy did not
// keep up. Such a play has means that tell how long it was.
func bySeed(f figure, a, b []*Trial) string {
	if len(a) < 2 {
		return ""
	}
	text := fmt.Sprintf("; medians of %d seeds: %.3g against %.3g", len(a), middle(f, a), middle(f, b))
	if x, y := collapsed(a), collapsed(b); x+y > 0 {
		text += fmt.Sprintf("; %d and %d of them collapsed", x, y)
	}
	return text
}

// middle is the median of a figure over the runs of a policy.
func middle(f figure, runs []*Trial) float64 {
	var all []float64
	for i := range runs {
		all = append(all, value(f, runs[i:i+1]))
	}
	slices.Sort(all)
	n := len(all)
	return (all[(n-1)/2] + all[n/2]) / 2
}

// collapsedBelow is the share of good answers that a play has less of when its queues grew as long as it
// lasted: half of what makes a capacity.
const collapsedBelow = 0.45

func collapsed(runs []*Trial) int {
	n := 0
	for i := range runs {
		if value(good, runs[i:i+1]) < collapsedBelow {
			n++
		}
	}
	return n
}

// size is how large the fleet is beside eight and eight.
func (c cell) size() float64 {
	if strings.HasPrefix(c.Cluster, "4P4D") {
		return 0.5
	}
	return 1
}

// share returns c at a part of a policy's capacity.
func (l *lab) share(ctx context.Context, c cell, policy string, guess, part float64) (cell, error) {
	one := c.setting(policy)
	one.Seed = 1
	f, err := l.capacity(ctx, one, guess*c.size())
	if err != nil {
		return c, err
	}
	c.Load = part * f.load(nil)
	return c, nil
}

// loaded returns the conversation on eight and eight replicas with the larger cache, at a part of our
// capacity there.
func (l *lab) loaded(ctx context.Context, part float64) (cell, error) {
	return l.share(ctx, cell{Conversation, "8P8D", 4, 0}, ours, guessOurs, part)
}

// beside compares a figure of ours with that of the best of other policies, played in the same setting. The
// best is found with so many seeds.
func (l *lab) beside(
	ctx context.Context, f figure, with func(a, b float64) float64, at func(policy string) Setting,
	others []string, seeds int,
) (Estimate, error) {
	best := ""
	least := 0.0
	var note strings.Builder
	for _, name := range others {
		runs, err := l.seeds(ctx, at(name), seeds)
		if err != nil {
			return Estimate{}, err
		}
		v := value(f, runs)
		fmt.Fprintf(&note, ", %s %.3g", name, v)
		if best == "" || v < least {
			best, least = name, v
		}
	}
	e, err := l.compare(ctx, f, with, at(ours), at(best), l.many())
	e.Note += " of " + best + note.String()
	return e, err
}

// excess is by which share a is above b.
func excess(a, b float64) float64 { return -reduction(a, b) }
