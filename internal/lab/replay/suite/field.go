package suite

import (
	"context"
	"fmt"
)

// roundRobinClaims are at loads that round-robin still completes: the densest, in hundredths of the recorded
// one, at which 99 of 100 requests get their first token within a minute, the usual patience of proxies. A
// twentieth more, and it serves fewer than come: its backlog grows as long as the play lasts.
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
		all = append(all, below(c, roundRobin, "ttft_mean", meanTTFT, 0.70),
			below(c, roundRobin, "ttft_p50", p50TTFT, 0.70), below(c, roundRobin, "ttft_p99", p99TTFT, 0.75))
	}
	return all
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
			how: "largest load with 90 % of the requests inside 5 s to the first token and 100 ms a token, over " +
				"that of the best of the tuned baselines, - 1",
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

func agentClaims() []claim {
	var all []claim
	for _, c := range []cell{
		{Agents, "8P8D", 1, agentRate},
		{Agents, "8P8D", 4, agentRate},
		{Agents, "4P4D", 1, agentRate},
		{Agents, "4P4D", 4, agentRate},
	} {
		all = append(all, claim{
			name: fmt.Sprintf("ttft_p90_over_best_baseline/%v", c), target: 1, bound: AtMost,
			how: "p90 of the time to first token over that of the best of the tuned baselines, the same requests",
			measure: func(ctx context.Context, l *lab) (Estimate, error) {
				rivals, err := l.rivals(ctx, cell{Agents, "8P8D", 4, agentRate}.dev(), p90TTFT)
				if err != nil {
					return Estimate{}, err
				}
				return l.beside(ctx, p90TTFT, ratio, c.setting, rivals, l.many())
			},
		})
	}
	return all
}
