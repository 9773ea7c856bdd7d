package suite

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"tandem/internal/replay/cluster"
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

// The policies by name. The blind one routes prefill by cache and decode by a count, as the most used router does.
const (
	ours       = "tandem"
	split      = "tandem-split"
	roundRobin = "round-robin"
	sticky     = "session-sticky"
	blind      = "kv-aware"
	shared     = "tandem:share=0.1" // several routers tell each other every 100 ms
	limited    = "tandem:limit=5"   // refuses whose first token would come later than the SLO allows
)

// many is how many seeds all comparisons are played with. In the conversation a seed changes the time within a tick and who wins a tie, in the agents' sessions when
// they start: most of an interval comes from the requests.
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
		Workload: c.Workload, Cluster: c.Cluster, Cache: c.Cache, Load: c.Load, Span: 20 * time.Minute, Policy: policy,
		EventLag: 100 * time.Millisecond, Poll: time.Second,
	}
	if c.Workload == Agents {
		s.Span = time.Duration(float64(15*time.Minute) * agentRate / c.Load)
	}
	return s
}

// claims lists those of the full suite.
func claims() []claim {
	return slices.Concat(roundRobinClaims(), capacityClaims(), agentClaims(), affinityClaims(), staleClaims(), overloadClaims(), localClaims(), sequenceClaims(),
		oracleClaims(), pressureClaims(), transferClaims())
}

// roundRobinClaims are at loads that round-robin still completes: the densest, in hundredths of the recorded one, at which 99 of 100 requests get their first token
// within a minute, the usual patience of proxies. A twentieth more, and it serves fewer than come: its backlog grows as long as the play lasts.
func roundRobinClaims() []claim {
	var all []claim
	for _, c := range []cell{
		{Conversation, "8P8D", 1, 1.83},
		{Conversation, "8P8D", 4, 1.92},
		{Conversation, "4P4D", 1, 0.88},
		{Conversation, "4P4D", 4, 0.97},
		{Agents, "8P8D", 1, 0.06},
		{Agents, "8P8D", 4, 0.06},
		{Agents, "4P4D", 1, 0.03},
		{Agents, "4P4D", 4, 0.03},
	} {
		all = append(all, below(c, roundRobin, "ttft_mean", meanTTFT, 0.70), below(c, roundRobin, "ttft_p50", p50TTFT, 0.70), below(c, roundRobin, "ttft_p99", p99TTFT, 0.75))
	}
	return all
}

// agentRate is how many agents' sessions start a second. All 158 that fit have started after a quarter of an hour.
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
func (l *lab) compare(ctx context.Context, f figure, with func(a, b float64) float64, a, b Setting, seeds int) (Estimate, error) {
	ra, err := l.seeds(ctx, a, seeds)
	if err != nil {
		return Estimate{}, err
	}
	rb, err := l.seeds(ctx, b, seeds)
	if err != nil {
		return Estimate{}, err
	}
	e := compare(f, ra, rb, with)
	e.Note = fmt.Sprintf("load %.3g: %.3g against %.3g", a.Load, value(f, ra), value(f, rb))
	return e, nil
}

// Where searches for capacities begin: loads for eight and eight replicas, of ours and of the others.
const (
	guessOurs   = 3.4
	guessOthers = 2.3
)

func capacityClaims() []claim {
	var all []claim
	for _, c := range []cell{{Conversation, "8P8D", 1, 0}, {Conversation, "8P8D", 4, 0}} {
		all = append(all, claim{
			name: fmt.Sprintf("capacity_above_best_baseline/%v", c), target: 0.05, bound: AtLeast,
			how: "largest load with 90 % of the requests inside 5 s to the first token and 100 ms a token, over that of the best of the tuned baselines, - 1",
			measure: func(ctx context.Context, l *lab) (Estimate, error) {
				mine, err := l.capacities(ctx, c.setting(ours), guessOurs*c.size(), []string{ours}, seedsOfCapacity)
				if err != nil {
					return Estimate{}, err
				}
				rivals, err := l.rivals(ctx, c.dev(), meanTTFT)
				if err != nil {
					return Estimate{}, err
				}
				others, err := l.capacities(ctx, c.setting(ours), guessOthers*c.size(), rivals, seedsOfCapacity)
				if err != nil {
					return Estimate{}, err
				}
				return gain(mine[ours], others), nil
			},
		})
	}
	return all
}

// seedsOfCapacity is how many seeds a capacity is looked for with: its interval is of the requests.
const seedsOfCapacity = 1

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

func agentClaims() []claim {
	var all []claim
	for _, c := range []cell{{Agents, "8P8D", 1, agentRate}, {Agents, "8P8D", 4, agentRate}, {Agents, "4P4D", 1, agentRate}, {Agents, "4P4D", 4, agentRate}} {
		all = append(all, claim{
			name: fmt.Sprintf("ttft_p90_over_best_baseline/%v", c), target: 1, bound: AtMost,
			how: "p90 of the time to first token over that of the best of the tuned baselines, the same requests",
			measure: func(ctx context.Context, l *lab) (Estimate, error) {
				rivals, err := l.rivals(ctx, cell{Agents, "8P8D", 4, agentRate}.dev(), p90TTFT)
				if err != nil {
					return Estimate{}, err
				}
				best, err := l.best(ctx, p90TTFT, c, rivals)
				if err != nil {
					return Estimate{}, err
				}
				e, err := l.compare(ctx, p90TTFT, ratio, c.setting(ours), c.setting(best), l.many())
				e.Note += " of " + best
				return e, err
			},
		})
	}
	return all
}

// best returns the policy with the smallest figure.
func (l *lab) best(ctx context.Context, f figure, c cell, policies []string) (string, error) {
	best, least := "", 0.0
	for _, name := range policies {
		runs, err := l.seeds(ctx, c.setting(name), l.many())
		if err != nil {
			return "", err
		}
		if v := value(f, runs); best == "" || v < least {
			best, least = name, v
		}
	}
	return best, nil
}

// affinityClaims are about following caches without following them all to one replica, on the conversation at about 80 % of the capacity.
func affinityClaims() []claim {
	var all []claim
	for _, c := range []cell{{Conversation, "8P8D", 4, 3.3}, {Agents, "8P8D", 1, agentRate}, {Agents, "8P8D", 4, agentRate}} {
		all = append(all, claim{
			name: fmt.Sprintf("hit_over_sticky/%v", c), target: 0.9, bound: AtLeast,
			how: "share of prompt tokens found cached where they were prefilled, over that of session-sticky",
			measure: func(ctx context.Context, l *lab) (Estimate, error) {
				return l.compare(ctx, hit, ratio, c.setting(ours), c.setting(sticky), l.many())
			},
		}, claim{
			name: fmt.Sprintf("load_max_over_mean/%v", c), target: 1.25, bound: AtMost,
			how: "seconds of work of the busiest replica over the mean, in the worse pool: of prefill, and by which decoding makes steps longer",
			measure: func(ctx context.Context, l *lab) (Estimate, error) {
				return l.imbalance(ctx, c)
			},
		})
	}
	c := cell{Agents, "8P8D", 4, agentRate}
	for _, policy := range []string{ours, split} {
		all = append(all, claim{
			name: fmt.Sprintf("transfer_bytes_of_%s_over_blind/%v", policy, c), target: 0.6, bound: AtMost,
			how: "bytes of KV moved over those of " + blind + ", whose decode choice is a count of requests",
			measure: func(ctx context.Context, l *lab) (Estimate, error) {
				return l.compare(ctx, moved, ratio, c.setting(policy), c.setting(blind), l.many())
			},
		})
	}
	return all
}

func (l *lab) imbalance(ctx context.Context, c cell) (Estimate, error) {
	s := c.setting(ours)
	runs, err := l.seeds(ctx, s, l.many())
	if err != nil {
		return Estimate{}, err
	}
	fleet, err := s.play(l.Traces).Fleet()
	if err != nil {
		return Estimate{}, err
	}
	replicas := [2]int{len(fleet.Nodes[cluster.Prefill]), len(fleet.Nodes[cluster.Decode])}
	cost := &fleet.Nodes[cluster.Decode][0].Engine.Cost
	e := bootstrap(units(runs), func(times []float64) float64 {
		sum := 0.0
		for _, r := range runs {
			sum += imbalance(r, times, replicas, cost)
		}
		return sum / float64(len(runs))
	})
	e.Note = "the mean over seeds"
	return e, nil
}

// staleClaims compare what a usual deployment does not have, fresh knowledge, with what a bad one has.
func staleClaims() []claim {
	var all []claim
	for _, c := range []struct{ routers, policy, what string }{
		{"", ours, ""},
		{"x4", shared, " by four routers that tell each other of their bookings ten times a second"},
		{"x4", ours, " by four routers that do not know of each other"},
	} {
		all = append(all, claim{
			name: fmt.Sprintf("ttft_mean_stale_of_%s_over_fresh/conversation/8P8D%s/cache4", c.policy, c.routers), target: 0.15, bound: AtMost,
			how: "mean time to first token with reports every 5 s and events 1 s late" + c.what + " over that of one with reports every 0.1 s and no lag, - 1, at 80 % of the capacity",
			measure: func(ctx context.Context, l *lab) (Estimate, error) {
				at, err := l.share(ctx, cell{Conversation, "8P8D", 4, 0}, ours, guessOurs, 0.8)
				if err != nil {
					return Estimate{}, err
				}
				fresh, stale := at.setting(ours), at.setting(c.policy)
				fresh.EventLag, fresh.Poll = 0, 100*time.Millisecond
				stale.EventLag, stale.Poll = time.Second, 5*time.Second
				stale.Cluster += c.routers
				return l.compare(ctx, meanTTFT, excess, stale, fresh, l.many())
			},
		})
	}
	return all
}

// excess is by which share a is above b.
func excess(a, b float64) float64 { return -reduction(a, b) }

// overloadClaims are about what is left of the goodput when far more comes than can be served.
func overloadClaims() []claim {
	var all []claim
	for _, policy := range []string{ours, limited} {
		all = append(all, claim{
			name: fmt.Sprintf("goodput_of_%s_at_twice_capacity_over_peak/conversation/8P8D/cache4", policy), target: 0.9, bound: AtLeast,
			how: "good requests a second at twice the capacity over the most at 0.85, 1, 1.15, 1.5 and 2 times the capacity",
			measure: func(ctx context.Context, l *lab) (Estimate, error) {
				c, err := l.share(ctx, cell{Conversation, "8P8D", 4, 0}, ours, guessOurs, 1)
				if err != nil {
					return Estimate{}, err
				}
				return l.goodput(ctx, c.setting(policy), c.Load)
			},
		})
	}
	return all
}

func (l *lab) goodput(ctx context.Context, s Setting, capacity float64) (Estimate, error) {
	parts := []float64{0.85, 1, 1.15, 1.5, 2}
	samples, sessions := make([]*sample, len(parts)), 0
	var note strings.Builder
	fmt.Fprintf(&note, "capacity at load %.3g, goodput there", capacity)
	for i, part := range parts {
		runs, err := l.seeds(ctx, s.at(part*capacity), 1)
		if err != nil {
			return Estimate{}, err
		}
		samples[i], sessions = sampleOf(good, runs, nil), max(sessions, units(runs))
		fmt.Fprintf(&note, ", x%g %.3g", part, part*value(good, runs))
	}
	e := bootstrap(sessions, func(times []float64) float64 {
		peak, last := 0.0, 0.0
		for i, part := range parts {
			last = part * samples[i].sum(times)
			peak = max(peak, last)
		}
		return last / peak
	})
	e.Note = note.String()
	return e, nil
}

// localClaims are about prefilling where it is decoded, beside never doing so, at 80 % of what the fleet holds without it.
func localClaims() []claim {
	at := func(ctx context.Context, l *lab) (cell, error) {
		return l.share(ctx, cell{Conversation, "8P8D", 4, 0}, split, guessOthers, 0.8)
	}
	return []claim{{
		name: "ttft_mean_below_without_local/conversation/8P8D/cache4", target: 0.2, bound: AtLeast,
		how: "1 - mean time to first token over that of " + split + ", at 80 % of the capacity of the latter",
		measure: func(ctx context.Context, l *lab) (Estimate, error) {
			c, err := at(ctx, l)
			if err != nil {
				return Estimate{}, err
			}
			return l.compare(ctx, meanTTFT, reduction, c.setting(ours), c.setting(split), l.many())
		},
	}, {
		name: "tpot_p99_with_local/conversation/8P8D/cache4", target: slo.TPOT.Seconds(), bound: AtMost,
		how: "p99 of the seconds a token, at the same load",
		measure: func(ctx context.Context, l *lab) (Estimate, error) {
			c, err := at(ctx, l)
			if err != nil {
				return Estimate{}, err
			}
			runs, err := l.seeds(ctx, c.setting(ours), l.many())
			if err != nil {
				return Estimate{}, err
			}
			return plain(p99TPOT, runs), nil
		},
	}}
}

// fleet is a shape in which the joint choice is compared with one in sequence, and the load at which 90 % of its requests are good with the joint one, with
// Local(d) and without: found by bisection with one seed.
type fleet struct {
	shape           string
	capacity, split float64
	scarce          bool // decode is scarce and links are unequal
}

func fleets() []fleet {
	return []fleet{
		{"4P4D", 1.3, 0.69, false},
		{"8P8D", 3.25, 2.1, false},
		{"16P16D", 7.25, 4.95, false},
		{"6P2D", 1.22, 1.23, false},
		{"2P6D", 1.4, 0.257, false},
		{"4P4D+4P4D@4", 3.24, 1.98, false},
		{"4P4D+4P4D@1", 3.17, 2.05, false},
		{"6P2D+2P6D@4", 3.03, 1.91, false},
		{"6P2D+2P6D@1", 2.92, 1.78, false},
		{"8P3D", 1.95, 1.93, false},
		{"4P2D+4P1D@4", 1.75, 1.69, true},
		{"4P2D+4P1D@1", 1.8, 1.54, true},
	}
}

// The parts of a fleet's capacity at which the two are compared. Decode is scarce only near it.
const (
	insideCapacity = 0.85
	nearCapacity   = 0.95
)

// sequenceClaims compare the joint choice with the same terms chosen in sequence: prefill first, then decode given it.
func sequenceClaims() []claim {
	var all []claim
	for _, f := range fleets() {
		for _, pair := range []struct {
			joint, sequential string
			capacity          float64
		}{
			{ours, "tandem-sequential", f.capacity},
			{split, "tandem-split-sequential", f.split},
		} {
			all = append(all, inSequence(f.shape, pair.joint, pair.sequential, pair.capacity, insideCapacity, 1.03))
			if f.scarce {
				all = append(all, inSequence(f.shape, pair.joint, pair.sequential, pair.capacity, nearCapacity, 0.75))
			}
		}
	}
	return all
}

func inSequence(shape, joint, sequential string, capacity, part, target float64) claim {
	at := cell{Conversation, shape, 1, part * capacity}
	return claim{
		name: fmt.Sprintf("ttft_mean_of_%s_over_%s/%v/%g", joint, sequential, at, part), target: target, bound: AtMost,
		how: fmt.Sprintf("mean time to first token over that of the same terms with prefill chosen first, at %g of the capacity: load %.3g", part, at.Load),
		measure: func(ctx context.Context, l *lab) (Estimate, error) {
			return l.compare(ctx, meanTTFT, ratio, at.setting(joint), at.setting(sequential), l.many())
		},
	}
}

func oracleClaims() []claim {
	var all []claim
	for _, oracle := range []string{"oracle", "oracle-terms"} {
		all = append(all, claim{
			name: fmt.Sprintf("ttft_mean_over_%s/conversation/8P8D/cache4", oracle), target: 0.1, bound: AtMost,
			how: "mean time to first token over that of a router that knows the true state of everything, - 1, at 80 % of the capacity",
			measure: func(ctx context.Context, l *lab) (Estimate, error) {
				c, err := l.share(ctx, cell{Conversation, "8P8D", 4, 0}, ours, guessOurs, 0.8)
				if err != nil {
					return Estimate{}, err
				}
				return l.compare(ctx, meanTTFT, excess, c.setting(ours), c.setting(oracle), l.many())
			},
		})
	}
	return all
}

// pressure is so many clients with prompts of 16,000 tokens and long answers on four and four engines of 822,000 tokens of KV that they ask for 1.2 times
// what decode holds.
func pressure(policy string) Setting {
	const kv, prompt, answer = 822_000, 16_000, 3_000
	ceiling := 4 * kv / (prompt + answer/2)
	return Setting{
		Workload: Clients, Cluster: "4P4D", Cache: kv / 418e3, Policy: policy, EventLag: 100 * time.Millisecond, Poll: time.Second,
		Loops: Loops{Clients: ceiling * 12 / 10, Calls: 5, Input: prompt, MinOutput: answer / 2, MaxOutput: answer * 3 / 2, Stagger: 200 * time.Millisecond},
	}
}

func pressureClaims() []claim {
	const counted = "least-requests"
	return []claim{{
		name: "decode_pressure_ttft_p99_below_count/clients/4P4D", target: 0.3, bound: AtLeast,
		how: "1 - p99 of the time to first token over that of a choice by counts without admission, at 1.2 times the KV of the decode pool",
		measure: func(ctx context.Context, l *lab) (Estimate, error) {
			return l.compare(ctx, p99TTFT, reduction, pressure(ours), pressure(counted), l.many())
		},
	}, {
		name: "decode_pressure_good_above_count/clients/4P4D", target: 0.1, bound: AtLeast,
		how: "share of good requests, refused ones not being good, where nobody is let in whose first token would come after 5 s, less that of a choice by counts without admission",
		measure: func(ctx context.Context, l *lab) (Estimate, error) {
			return l.compare(ctx, good, difference, pressure(limited), pressure(counted), l.many())
		},
	}}
}

// transferClaims are about 64 clients with prompts of 8,000 tokens: neither always moving the KV nor never doing so may be better than deciding.
func transferClaims() []claim {
	var all []claim
	for _, link := range []float64{40, 3, 1} {
		at := func(policy string) Setting {
			return Setting{
				Workload: Clients, Cluster: "4P4D", Cache: 1, Link: link, Policy: policy, EventLag: 100 * time.Millisecond, Poll: time.Second,
				Loops: Loops{Clients: 64, Calls: 20, Input: 8_000, MinOutput: 128, MaxOutput: 384, Stagger: 50 * time.Millisecond},
			}
		}
		for _, what := range []struct {
			name, of string
			figure
		}{
			{"ttft_p99", "p99 of the time to first token", p99TTFT},
			{"e2e_mean", "mean time to the last token", meanEnd},
		} {
			all = append(all, claim{
				name: fmt.Sprintf("%s_over_better_fixed_choice/clients/4P4D/%gGBs", what.name, link), target: 0.05, bound: AtMost,
				how: what.of + " over that of the better of always and never transferring, - 1",
				measure: func(ctx context.Context, l *lab) (Estimate, error) {
					return l.overBetter(ctx, what.figure, at, split, "tandem-local")
				},
			})
		}
	}
	return all
}

// overBetter compares ours with the better of two.
func (l *lab) overBetter(ctx context.Context, f figure, at func(policy string) Setting, one, other string) (Estimate, error) {
	best, note, least := "", "", 0.0
	for _, name := range []string{one, other} {
		runs, err := l.seeds(ctx, at(name), l.many())
		if err != nil {
			return Estimate{}, err
		}
		v := value(f, runs)
		note += fmt.Sprintf(", %s %.3g (mean %.3g)", name, v, value(meanTTFT, runs))
		if best == "" || v < least {
			best, least = name, v
		}
	}
	e, err := l.compare(ctx, f, excess, at(ours), at(best), l.many())
	e.Note += note
	return e, err
}

// quickClaims lists those of the quick suite: what must hold with a wide margin on short windows.
func quickClaims() []claim {
	quick := func(c cell, policy string) Setting {
		s := c.setting(policy)
		s.Span = 6 * time.Minute
		if c.Workload == Agents {
			s.Span = 2 * time.Minute
		}
		return s
	}
	talk, agents := cell{Conversation, "4P4D", 4, 0.95}, cell{Agents, "4P4D", 1, agentRate}
	line := func(name string, target float64, bound Bound, f figure, with func(a, b float64) float64, a, b Setting) claim {
		return claim{
			name: "quick_" + name, target: target, bound: bound, how: "as its namesake of the full suite, a short window, one seed",
			measure: func(ctx context.Context, l *lab) (Estimate, error) { return l.compare(ctx, f, with, a, b, 1) },
		}
	}
	return []claim{
		line("ttft_mean_below_round-robin/conversation", 0.4, AtLeast, meanTTFT, reduction, quick(talk, ours), quick(talk, roundRobin)),
		line("ttft_mean_below_without_local/conversation", 0, AtLeast, meanTTFT, reduction, quick(talk, ours), quick(talk, split)),
		line("tpot_p99_over_round-robin/conversation", 4, AtMost, p99TPOT, ratio, quick(talk, ours), quick(talk, roundRobin)),
		line("ttft_mean_below_round-robin/agents", 0.3, AtLeast, meanTTFT, reduction, quick(agents, ours), quick(agents, roundRobin)),
		line("hit_over_sticky/agents", 0.8, AtLeast, hit, ratio, quick(agents, ours), quick(agents, sticky)),
		line("transfer_bytes_over_blind/agents", 0.8, AtMost, moved, ratio, quick(agents, split), quick(agents, blind)),
	}
}
