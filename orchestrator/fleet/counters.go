package fleet

import (
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// Transfers is what a decode server should have fetched, by pair, since its counters were read last. Safe
// for concurrent use.
type Transfers struct {
	mu          sync.Mutex // guards the following
	from        map[outlier.Pair]int
	newest      map[outlier.Pair]time.Time // when the newest split answer of each recent pair began
	tokens      int
	shown       bool           // an answer reported blocks that arrived
	failed      int            // attempts that failed at loading, which a counter is expected to show
	before      bool           // some failed in the time between the two readings before
	unexplained []outlier.Pair // at the last reading, for failed transfers without a report

	known          bool
	hits, failures float64 // the engine's counters as of then
}

// Began counts a split answer that has begun. Its decode engine has just loaded the given number of tokens.
func (t *Transfers) Began(prefill, decode replica.ID, tokens int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.from == nil {
		t.from = map[outlier.Pair]int{}
	}
	p := outlier.Pair{Prefill: prefill, Decode: decode}
	t.from[p]++
	t.tokens += tokens
	if t.newest == nil {
		t.newest = map[outlier.Pair]time.Time{}
	}
	t.newest[p] = time.Now()
}

// BeganSince reports whether a split answer of the pair has begun since then.
func (t *Transfers) BeganSince(p outlier.Pair, then time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.newest[p].Before(then)
}

// Shown notes that an answer reported blocks that arrived.
func (t *Transfers) Shown() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shown = true
}

// Failed counts an attempt that failed at loading.
func (t *Transfers) Failed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed++
}

// enough is how many answers a counter must have had the time to show.
const enough = 3

// read compares the engine's counters with their earlier values. It returns the pairs whose transfers the
// counters do not show, or show to have failed without an error in an answer. NaN is unknown. An engine may
// count a failed transfer before or after its answer reports it. So the reports around the readings before
// and after count too.
func (t *Transfers) read(m engine.Metrics) (doubtful []outlier.Pair, why string) {
	hits, failures := 0.0, 0.0
	for i := range m.Ranks {
		hits += m.Ranks[i].Counters.ExternalHits
		failures += m.Ranks[i].Counters.NIXLFailedTransfers
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	answers := 0
	for _, n := range t.from {
		answers += n
	}
	failed, idle := failures > t.failures && t.failed == 0 && !t.before, hits == t.hits
	if t.failed == 0 && len(t.unexplained) > 0 {
		doubtful, why = t.unexplained, "the engine counts failed transfers that no answer reported"
	}
	t.before, t.unexplained = t.failed > 0, nil
	if t.known && !failed && idle && answers > 0 && answers < enough {
		t.failures, t.failed = failures, 0
		return doubtful, why // too few to tell: they stay
	}
	if t.known && failed {
		t.unexplained = slices.Collect(maps.Keys(t.from))
	}
	if t.known && answers >= enough && t.tokens > 0 && idle && !t.shown {
		doubtful, why = slices.Collect(maps.Keys(t.from)), "the engine counts no token from another engine"
	}
	t.known = true
	t.hits = hits
	t.failures = failures
	clear(t.from)
	maps.DeleteFunc(t.newest, func(_ outlier.Pair, at time.Time) bool { return time.Since(at) > time.Minute })
	t.tokens = 0
	t.failed = 0
	t.shown = false
	return doubtful, why
}

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
