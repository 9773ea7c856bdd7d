package fleet

import (
	"math"

	"github.com/tandem-router/tandem/internal/engine"
)

// LeaseCounters is what an engine counts about leases. A prefill engine counts leases that ran out, and a
// decode engine counts reads that failed. A new process counts from zero again, so counters of two processes
// cannot be compared.
type LeaseCounters struct {
	Expired float64 // leases that ran out (vllm:nixl_num_kv_expired_reqs_total), NaN unknown
	Late    float64 // reads that came after that (vllm:nixl_num_notifications_after_expiry_total), NaN unknown
	Failed  float64 // reads of its own that failed (vllm:nixl_num_failed_transfers_total), NaN unknown

	started float64 // process start, 0 unknown
	// How many scrapes had reached no server before. If an engine does not tell its start, it may be another
	// process after an outage.
	outages uint32
}

// SameProcess reports whether both were counted by one process.
func (c *LeaseCounters) SameProcess(as *LeaseCounters) bool {
	return c.started == as.started && (c.started != 0 || c.outages == as.outages)
}

// unknownCounters are the counters of an engine that has not been asked yet. These counters are equal to no
// counters, not even to themselves.
var unknownCounters = &LeaseCounters{
	started: math.NaN(), Expired: math.NaN(), Late: math.NaN(), Failed: math.NaN(),
}

// leaseCounters adds up the ranks of a server; one rank that does not tell makes the sum unknown. outages is
// the number of scrapes that had reached no server before.
func leaseCounters(m *engine.Metrics, outages uint32) *LeaseCounters {
	c := LeaseCounters{started: m.Started, outages: outages}
	for i := range m.Ranks {
		c.Expired += m.Ranks[i].Counters.NIXLExpired
		c.Late += m.Ranks[i].Counters.NIXLAfterExpiry
		c.Failed += m.Ranks[i].Counters.NIXLFailedTransfers
	}
	return &c
}
