package claims

import (
	"context"
	"time"
)

// slow is the speed of links, in GB/s, at which a wrong belief about their speed matters.
const slow = 4

// quickly is a short window of c.
func (c cell) quickly(policy string) Setting {
	s := c.setting(policy)
	s.Span = 6 * time.Minute
	if c.Workload == Agents {
		s.Span = 2 * time.Minute
	}
	return s
}

// quickly makes a claim about two short plays.
func quickly(name string, target float64, bound Bound, f figure, with func(a, b float64) float64,
	a, b Setting,
) claim {
	return claim{
		name: "quick_" + name, target: target, bound: bound,
		how:     "a short window, one seed",
		measure: func(ctx context.Context, l *lab) (Estimate, error) { return l.compare(ctx, f, with, a, b) },
	}
}

// quickTalk is a fleet for which a short window is enough.
var quickTalk = cell{Conversation, "4P4D", 4, 0.95}

// quickClaims lists claims that must hold with a wide margin on short windows.
func quickClaims() []claim {
	talk, agents := quickTalk.quickly, cell{Agents, "4P4D", 1, agentRate}.quickly
	return append([]claim{
		quickly("ttft_mean_below_round-robin/conversation", 0.4, AtLeast, meanTTFT, reduction, talk(ours),
			talk(roundRobin)),
		quickly("ttft_mean_below_without_local/conversation", 0, AtLeast, meanTTFT, reduction, talk(ours),
			talk(split)),
		quickly("tpot_p99_over_round-robin/conversation", 4, AtMost, p99TPOT, ratio, talk(ours),
			talk(roundRobin)),
		quickly("ttft_mean_below_round-robin/agents", 0.3, AtLeast, meanTTFT, reduction, agents(ours),
			agents(roundRobin)),
		quickly("hit_over_sticky/agents", 0.8, AtLeast, hit, ratio, agents(ours), agents(sticky)),
		quickly("transfer_bytes_over_blind/agents", 0.8, AtMost, moved, ratio, agents(split), agents(blind)),
	}, toldWrongClaims()...)
}

// toldWrongClaims are about routers with wrong facts, as in the grid.
func toldWrongClaims() []claim {
	told := func(misstate, policy string) Setting {
		s := quickTalk.quickly(policy)
		s.Link, s.Misstate = slow, misstate
		return s
	}
	truth := told("", ours)
	return []claim{
		quickly("ttft_mean_links_10_over_truth/conversation", 1.2, AtMost, meanTTFT, ratio,
			told("links=10", ours), truth),
		quickly("good_speed_2_over_truth/conversation", 0.98, AtLeast, good, ratio, told("speed=2", ours), truth),
		quickly("good_ids_none_over_kv-aware/conversation", 0.95, AtLeast, good, ratio, told("ids=none", ours),
			told("ids=none", bySeconds)),
	}
}
