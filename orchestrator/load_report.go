package orchestrator

import (
	"time"

	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/orchestrator/fleet"
)

// reportLoad passes on the load report of an answer. If several ranks share an address, the header does not
// say which rank reported.
func reportLoad(to *fleet.Endpoint, resp *engine.Response) {
	if to.Member.Pinned() {
		return
	}
	value := resp.Header.Get("Endpoint-Load-Metrics")
	if value == "" {
		return
	}
	if load, ok := engine.ParseORCA(value); ok {
		now := time.Now()
		load.At = now
		to.Observe(load, now)
	}
}
