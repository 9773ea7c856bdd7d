package observe

import (
	"time"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/prefill"
)

var (
	descDemand = desc("tandem_demand_replicas",
		"Replicas of a pool that the traffic of the last two minutes keeps busy.", "pool")
	descGoal     = desc("tandem_ttft_goal_seconds", "limits.first_token; absent without it.")
	descCapacity = desc("tandem_decode_capacity_blocks",
		"KV blocks of a decode replica; absent while unknown.", "replica")
)

// scale reports to autoscalers how much of each pool the traffic uses.
func (c *collector) scale(e emit, ps []prefill.MemberStatus, ds []decode.MemberStatus, now time.Time) {
	prompts, answers := c.of.Demand.Pools(ps, ds, c.state.Decode.PeerLoads(now), now)
	e.gauge(descDemand, prompts, "prefill")
	e.gauge(descDemand, answers, "decode")
	for _, m := range ds {
		e.known(descCapacity, float64(m.Capacity), string(m.ID))
	}
	if goal := c.of.Goal(); goal > 0 {
		e.gauge(descGoal, goal.Seconds())
	}
}
