package observe

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

var (
	descLink = desc("tandem_link_bytes_per_second", "Bandwidth that the path between two replicas is taken "+
		"for, of the 256 pairs that differ most from scoring.links.", "prefill", "decode")
	descKind = desc("tandem_link_kind_bytes_per_second",
		"Bandwidth that a pair of which nothing was measured is taken for, by kind of path.", "kind")
)

// linksShown is the largest number of pairs with series. A fleet of 64 and 64 replicas has 4,096 pairs.
const linksShown = 256

// links reports the learned speeds of paths.
func (c *collector) links(e emit, now time.Time) {
	for kind, speed := range c.state.Planner.LinkKinds() {
		e.gauge(descKind, speed, replica.Link(kind).String())
	}
	all := c.state.Planner.LinkSpeeds(now)
	off := func(l planner.LinkSpeed) float64 { return math.Abs(math.Log(l.BytesPerSecond / l.Configured)) }
	slices.SortStableFunc(all, func(a, b planner.LinkSpeed) int { return cmp.Compare(off(b), off(a)) })
	for _, l := range all[:min(len(all), linksShown)] {
		e.gauge(descLink, l.BytesPerSecond, string(l.Prefill), string(l.Decode))
	}
}
