package suite

import (
	"context"
	"fmt"

	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// affinityClaims are about following caches without following them all to one replica, on the conversation at
// about 80 % of the capacity.
func affinityClaims() []claim {
	var all []claim
	for _, c := range []cell{
		{Conversation, "8P8D", 1, 2.6},
		{Conversation, "8P8D", 4, 3.3},
		{Conversation, "4P4D", 1, 1.05},
		{Conversation, "4P4D", 4, 1.6},
		{Agents, "8P8D", 1, agentRate},
		{Agents, "8P8D", 4, agentRate},
		{Agents, "4P4D", 1, agentRate},
		{Agents, "4P4D", 4, agentRate},
	} {
		all = append(all, claim{
			name: fmt.Sprintf("hit_over_sticky/%v", c), target: 0.9, bound: AtLeast,
			how: "share of prompt tokens found cached where they were prefilled, over that of session-sticky",
			measure: func(ctx context.Context, l *lab) (Estimate, error) {
				return l.compare(ctx, hit, ratio, c.setting(ours), c.setting(sticky), l.many())
			},
		}, claim{
			name: fmt.Sprintf("load_max_over_mean/%v", c), target: 1.25, bound: AtMost,
			how: "seconds of work of the busiest replica over the mean, in the worse pool: of prefill, and by which " +
				"decoding makes steps longer",
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
