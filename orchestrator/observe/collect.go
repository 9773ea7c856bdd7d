package observe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/discovery"
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/kvevents"
	"github.com/tandem-router/tandem/internal/liveness"
	"github.com/tandem-router/tandem/internal/roster"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/outlier"
	"github.com/tandem-router/tandem/orchestrator/peers"
	"github.com/tandem-router/tandem/prefill"
)

// collector reads the state of pools, indexes and streams at each scrape. So there is no second copy that
// must follow this state.
type collector struct {
	state *State
	of    Collected
}

// Collected holds what a collector reads besides the [State].
type Collected struct {
	Peers   *peers.Peers
	Clock   *liveness.Clock
	Answers func() *AnswerCache  // nil: there is no answer cache
	Goal    func() time.Duration // of the TTFT; 0: there is none
	Demand  *Demand
	Found   func() []discovery.Found
}

// NewCollector makes a collector of metrics of state. Its description of metrics needs neither argument.
func NewCollector(state *State, of Collected) prometheus.Collector { return &collector{state, of} }

// described holds all metrics of the collector. Only desc adds to it, while the process starts.
var described []*prometheus.Desc

// desc describes a metric of the collector.
func desc(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc(name, help, labels, nil)
	described = append(described, d)
	return d
}

var (
	perReplica = []string{"pool", "replica"}

	descUp     = desc("tandem_replica_up", "Whether the replica is usable: 1 or 0.", perReplica...)
	descLeases = desc("tandem_leases", "Reservations that have not ended, by pool and replica.", perReplica...)
	descQueued = desc("tandem_prefill_queued_tokens",
		"Uncached prompt tokens that we sent to a prefill replica and it has not finished.", "replica")
	descPromise = desc("tandem_decode_promised_blocks",
		"KV blocks of a decode replica that are promised to requests.", "replica")
	descFree = desc("tandem_decode_free_blocks",
		"KV blocks of a decode replica that can still be promised; absent while unknown.", "replica")
	descUsage = desc("tandem_replica_kv_usage_ratio",
		"Share of KV blocks in use as the replica last reported; absent while unknown.", perReplica...)
	descRunning = desc("tandem_replica_running",
		"Requests in the replica's batch as last reported; absent while unknown.", perReplica...)
	descWaiting = desc("tandem_replica_waiting",
		"Requests in the replica's queue as last reported; absent while unknown.", perReplica...)
	descAge = desc("tandem_replica_report_age_seconds",
		"Age of the replica's newest load report; absent before the first.", perReplica...)
	descState = desc("tandem_replica_state",
		"1 while the replica is in the state, else 0; /debug/replicas has the cause.", "pool", "replica", "state")
	descOthers = desc("tandem_replica_requests_of_others",
		"Requests on the replica, on average, that neither this router nor a known router sent.", perReplica...)
	descPairOut = desc("tandem_pair_ejected", "1 while a pair is ejected because KV blocks did not arrive; 0 "+
		"after recent failures; else absent.", "prefill", "decode")
	descTrust = desc("tandem_index_trust",
		"How far the index of a replica can be believed: 1 for the state that holds.", "pool", "replica", "state")

	descCut = desc("tandem_index_truncated", "Whether blocks of the replica were dropped from the index for "+
		"its byte budget, so that matches may be too short: 1 or 0.", perReplica...)
	descMemberships = desc("tandem_index_memberships", "Pairs of block and holder in a pool's index.", "pool")
	descBytes       = desc("tandem_index_bytes", "Estimated memory of a pool's index.", "pool")
	descOrphans     = desc("tandem_index_orphans_total",
		"Blocks of events whose parent was unknown, not indexed.", "pool")
	descTruncated = desc("tandem_index_truncated_total",
		"Memberships forgotten to stay within the byte budget.", "pool")
	descVictims = desc("tandem_index_victims_total", "Blocks that replicas should evict for the prompts sent "+
		"to them, blocks that they evicted, and blocks that are both.", "pool", "blocks")

	descBatches = desc("tandem_events_batches_total", "Event batches applied.", perReplica...)
	descGaps    = desc("tandem_events_gaps_total", "Gaps noticed in an event stream.", perReplica...)
	descLost    = desc("tandem_events_lost_total", "Gaps that replay could not fill.", perReplica...)
	descReplays = desc("tandem_events_replays_total", "Replays asked for.", perReplica...)
	descBad     = desc("tandem_events_decode_errors_total",
		"Event batches that could not be read.", perReplica...)
	descRestarts = desc("tandem_events_restarts_total", "Engine restarts noticed in an event stream, by its "+
		"sequence falling back or by other bytes under a known number.", perReplica...)
	descReconns = desc("tandem_events_reconnects_total",
		"Connections to an event stream made after the first.", perReplica...)
	descTimeouts = desc("tandem_events_replay_timeouts_total",
		"Replays that fell silent before their end.", perReplica...)
	descAgain = desc("tandem_events_duplicates_total",
		"Event batches dropped because they had been applied already.", perReplica...)
	descUnknown = desc("tandem_events_skipped_total",
		"Events of kinds that we do not know, skipped.", perReplica...)
	descRank = desc("tandem_events_wrong_rank_total",
		"Event batches that name another data-parallel rank than the stream was configured for.", perReplica...)
	descEvents  = desc("tandem_events_total", "Events in the batches applied.", perReplica...)
	descApplied = desc("tandem_events_blocks_total", "Blocks of events by result: stored, removed, orphaned "+
		"(parent unknown: not indexed), skipped (masked, other block size or group).", "pool", "replica", "result")
	descSkewed = desc("tandem_events_skewed_total", "Live event batches with a time stamp in the future: the "+
		"clocks differ by more than the stream lags.", perReplica...)
	descIndexLag = desc("tandem_index_lag_seconds",
		"Age of a live event batch when the index has it: since the engine's time stamp (event; clock skew "+
			"included) or since we received it (received).", "pool", "replica", "from")

	descToken = desc("tandem_replica_prefill_token_seconds",
		"Seconds a prompt token, as learned of the replica; absent before anything is.", perReplica...)
	descRead = desc("tandem_replica_read_token_seconds", "Seconds to read the KV cache of a token back to the "+
		"GPU, as learned of the replica; absent before anything is.", "pool", "replica", "medium")
	descStep = desc("tandem_replica_decode_step_seconds", "Seconds a decode step of an empty batch, as "+
		"learned of the replica; absent before anything is.", perReplica...)

	descMost = desc("tandem_replica_max_sequences",
		"Sequences that a decode engine runs at a time, as learned of it; absent before that is.", perReplica...)
	descCuts = desc("tandem_replica_cuts_prompts", "1 while a decode engine is known to cut prompts as finely "+
		"as pieces; then prompts go whole.", perReplica...)

	descRetrying = desc("tandem_retry_budget_used", "Requests that hold a place in the retry budget.")
	descBudget   = desc("tandem_retry_budget",
		"Places in the retry budget now: retry.share of the requests in flight, at least retry.min.")

	descPeer = desc("tandem_router_peer_up", "Whether another router has told its bookings lately: 1 or 0; "+
		"absent for one that is known already, such as this one.", "peer")
	descStore = desc("tandem_router_store_up",
		"1 while the server works through which routers share bookings, else 0; absent without a server.")
	descMet = desc("tandem_router_store_routers",
		"Other routers that are heard through the server that routers share.")
	descDelay = desc("tandem_router_store_delay_seconds",
		"Time that the newest message took through the server that routers share, back to this router.")
	perQuestion = []string{"source", "name", "for"}
	descFound   = desc("tandem_discovery_members",
		"Members in the newest good answer to a question of discovery.", perQuestion...)
	descFailing = desc("tandem_discovery_failing", "Whether the newest answer to a question of discovery was "+
		"not good, so that the members found last stay: 1 or 0.", perQuestion...)
	descRemembered = desc("tandem_discovery_remembered", "Whether a question of discovery has no answer yet, "+
		"so that the members that an earlier process found serve: 1 or 0.", perQuestion...)
	descQueue   = desc("tandem_queue_waiting", "Requests that wait for decode room.")
	descBacklog = desc("tandem_queue_backlog_seconds",
		"Time until all that wait for decode room should have found it. Beyond 4 s the newest of them are first.")
	descStall = desc("tandem_stalled_seconds_total",
		"Time this process stood still, as noticed by its own clock.")
)

// Describe implements [prometheus.Collector].
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range described {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	now := time.Now()
	e := emit(ch)
	traffic := c.state.Traffic()
	e.gauge(descQueue, float64(traffic.Waiting))
	e.gauge(descBacklog, traffic.Backlog.Seconds())
	e.counter(descStall, c.of.Clock.StalledFor(now).Seconds())
	e.gauge(descRetrying, float64(traffic.Retrying))
	e.gauge(descBudget, float64(traffic.RetryBudget))
	prefills, decodes := c.state.prefillStatus(now), c.state.decodeStatus(now)
	c.pools(e, prefills, decodes)
	c.scale(e, prefills, decodes, now)
	c.streams(e)
	c.peers(e)
	for _, f := range c.of.Found() {
		e.gauge(descFound, float64(len(f.Replicas)), f.Source, f.Name, f.Pool)
		e.gauge(descFailing, oneIf(f.Err != ""), f.Source, f.Name, f.Pool)
		e.gauge(descRemembered, oneIf(f.State == discovery.Remembered), f.Source, f.Name, f.Pool)
	}
	c.answers(e)
	c.links(e, now)
	for _, p := range c.state.FailingPairs(now) {
		e.gauge(descPairOut, oneIf(p.State == outlier.Ejected), string(p.Pair.Prefill), string(p.Pair.Decode))
	}
}

func (c *collector) peers(e emit) {
	for url, up := range c.of.Peers.Heard() {
		e.gauge(descPeer, oneIf(up), url)
	}
	if s, ok := c.of.Peers.Store(); ok {
		e.gauge(descStore, oneIf(s.Up))
		e.gauge(descMet, float64(s.Routers))
		e.gauge(descDelay, s.Delay.Seconds())
	}
}

func (c *collector) pools(e emit, prefills []prefill.MemberStatus, decodes []decode.MemberStatus) {
	for _, m := range prefills {
		e.member("prefill", m.Status, m.Requests)
		e.load("prefill", string(m.ID), m.Running, m.Waiting, m.Usage, m.LoadAge)
		e.gauge(descQueued, float64(m.Tokens), string(m.ID))
		if m.Samples > 0 {
			e.gauge(descToken, m.Speed.A, "prefill", string(m.ID))
		}
		e.reads("prefill", string(m.ID), m.Reads)
	}
	for _, m := range decodes {
		e.member("decode", m.Status, m.Leases)
		e.load("decode", string(m.ID), m.Running, m.Waiting, m.Usage, m.LoadAge)
		e.gauge(descPromise, float64(m.Promised), string(m.ID))
		e.known(descFree, float64(m.Free), string(m.ID))
		if m.Samples > 0 {
			e.gauge(descStep, m.Speed.D0, "decode", string(m.ID))
		}
		if m.MaxSequences >= 0 {
			e.gauge(descMost, float64(m.MaxSequences), "decode", string(m.ID))
		}
		e.gauge(descCuts, oneIf(m.CutsPrompts), "decode", string(m.ID))
		e.reads("decode", string(m.ID), m.Reads)
	}
	e.index("prefill", c.state.Prefill.IndexStats())
	e.index("decode", c.state.Decode.IndexStats())
}

func (e emit) reads(pool, id string, byMedium map[string]float64) {
	for medium, perToken := range byMedium {
		e.gauge(descRead, perToken, pool, id, medium)
	}
}

func (c *collector) streams(e emit) {
	for _, w := range c.state.Fleet.Watchers() {
		pool := w.Role().String()
		if len(w.Members()) == 0 {
			e.gauge(descUp, 0, pool, w.Name())
		}
		c.states(e, w)
		for _, f := range w.Streams() {
			s, id := f.Stats(), string(f.ID())
			e.stream(s, pool, id)
			for result, n := range f.Blocks() {
				e.counter(descApplied, float64(n), pool, id, result)
			}
		}
	}
}

// states sends one series for each possible state of a replica, so that no series appears or vanishes.
func (c *collector) states(e emit, w *fleet.Watcher) {
	for _, m := range w.Members() {
		others, _ := w.Unseen(m.ID)
		e.gauge(descOthers, others, w.Role().String(), string(m.ID))
		for _, state := range fleet.StateNames() {
			e.gauge(descState, oneIf(w.HasState(m.ID, state)), w.Role().String(), string(m.ID), state)
		}
	}
}

// stream sends the counters of a follower.
func (e emit) stream(s kvevents.Stats, pool, id string) {
	for _, x := range [...]struct {
		desc *prometheus.Desc
		n    uint64
	}{
		{descBatches, s.Batches},
		{descEvents, s.Events},
		{descGaps, s.Gaps},
		{descLost, s.Lost},
		{descReplays, s.Replays},
		{descTimeouts, s.Timeouts},
		{descRestarts, s.Restarts},
		{descReconns, s.Reconnects},
		{descAgain, s.Duplicates},
		{descUnknown, s.Unknown},
		{descRank, s.WrongRank},
		{descBad, s.DecodeErrors},
		{descSkewed, s.Skewed},
	} {
		e.counter(x.desc, float64(x.n), pool, id)
	}
	e.lags(&s.Behind, pool, id, "event")
	e.lags(&s.Applying, pool, id, "received")
}

// lags sends the ages of batches when they were in the index.
func (e emit) lags(l *kvevents.Lags, labels ...string) {
	e <- prometheus.MustNewConstHistogram(descIndexLag, l.Count, l.Sum.Seconds(), l.Buckets(), labels...)
}

// emit sends metrics to one scrape.
type emit chan<- prometheus.Metric

func (e emit) gauge(d *prometheus.Desc, v float64, labels ...string) {
	e <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (e emit) counter(d *prometheus.Desc, v float64, labels ...string) {
	e <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
}

// known omits unknown values, which pools return as negative numbers. A missing series cannot be mistaken for
// an idle replica.
func (e emit) known(d *prometheus.Desc, v float64, labels ...string) {
	if v >= 0 {
		e.gauge(d, v, labels...)
	}
}

func (e emit) member(pool string, s roster.Status, leases int) {
	id := string(s.ID)
	e.gauge(descUp, oneIf(s.Healthy), pool, id)
	e.gauge(descLeases, float64(leases), pool, id)
	e.gauge(descTrust, 1, pool, id, s.Trust.String())
	e.gauge(descCut, oneIf(s.Truncated), pool, id)
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (e emit) load(pool, id string, running, waiting int, usage, ageMS float64) {
	e.known(descRunning, float64(running), pool, id)
	e.known(descWaiting, float64(waiting), pool, id)
	e.known(descUsage, usage, pool, id)
	e.known(descAge, ageMS/1e3, pool, id)
}

func (e emit) index(pool string, s kv.Stats) {
	e.gauge(descMemberships, float64(s.Memberships), pool)
	e.gauge(descBytes, float64(s.Bytes), pool)
	e.counter(descOrphans, float64(s.Orphans), pool)
	e.counter(descTruncated, float64(s.Truncated), pool)
	e.counter(descVictims, float64(s.Victims.Foreseen), pool, "predicted")
	e.counter(descVictims, float64(s.Victims.Evicted), pool, "evicted")
	e.counter(descVictims, float64(s.Victims.Both), pool, "both")
}
