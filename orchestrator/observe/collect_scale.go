package observe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/prefill"
)

var (
	descDemand = prometheus.NewDesc("tandem_demand_replicas",
		"Replicas of a pool that the traffic of the last two minutes keeps busy.", []string{"pool"}, nil)
	descGoal = prometheus.NewDesc("tandem_ttft_goal_seconds", "limits.first_token; absent without it.", nil,
		nil)
	descCapacity = prometheus.NewDesc("tandem_decode_capacity_blocks",
		"KV blocks of a decode replica; absent while unknown.", []string{"replica"}, nil)
)

// scale tells autoscalers how much of each pool the traffic takes.
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
