package suite

import (
	"context"
	"time"
)

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
	line := func(name string, target float64, bound Bound, f figure, with func(a, b float64) float64,
		a, b Setting,
	) claim {
		return claim{
			name: "quick_" + name, target: target, bound: bound,
			how:     "as its namesake of the full suite, a short window, one seed",
			measure: func(ctx context.Context, l *lab) (Estimate, error) { return l.compare(ctx, f, with, a, b, 1) },
		}
	}
	return []claim{
		line("ttft_mean_below_round-robin/conversation", 0.4, AtLeast, meanTTFT, reduction, quick(talk, ours),
			quick(talk, roundRobin)),
		line("ttft_mean_below_without_local/conversation", 0, AtLeast, meanTTFT, reduction, quick(talk, ours),
			quick(talk, split)),
		line("tpot_p99_over_round-robin/conversation", 4, AtMost, p99TPOT, ratio, quick(talk, ours),
			quick(talk, roundRobin)),
		line("ttft_mean_below_round-robin/agents", 0.3, AtLeast, meanTTFT, reduction, quick(agents, ours),
			quick(agents, roundRobin)),
		line("hit_over_sticky/agents", 0.8, AtLeast, hit, ratio, quick(agents, ours), quick(agents, sticky)),
		line("transfer_bytes_over_blind/agents", 0.8, AtMost, moved, ratio, quick(agents, split),
			quick(agents, blind)),
	}
}
