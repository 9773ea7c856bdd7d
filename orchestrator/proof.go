package orchestrator

import (
	"maps"
	"slices"
	"sync"
	"time"

	"tandem/internal/engine"
	"tandem/internal/replica"
	"tandem/orchestrator/outlier"
	"tandem/orchestrator/planner"
)

// That a request was split does not prove that its blocks came over: an engine whose connector is missing, or which computes again what it could not load, answers
// well and late, and nobody notices that the prefill was for nothing. So each split answer is held against what its decode engine says it had cached, and where it
// says nothing, the engine's own counters are.

// prove counts what a split answer was to bring and what came of it, by pair, and tells the planner whether anything
// moved. What its engine had cached beyond what we believed proves that only where we know what it held: else it is as
// if the answer told nothing, and the engine's counters decide.
func (a *answer) prove() {
	h := a.h
	if !a.split || a.first.IsZero() {
		return
	}
	o, rec := h.j.q.o, h.j.rec
	planned, block := max(0, rec.Prompt-h.b.MatchedDecode), max(h.b.Decode.Facts.BlockSize, 1)
	rec.Planned = planned
	if a.told >= 0 && h.j.plan.Sequences <= 1 {
		rec.Moved = max(0, a.told-h.b.MatchedDecode)
		rec.Unsure = rec.Moved > 0 && !h.b.Sure()
	}
	from, to := string(h.b.Prefill.ID), string(h.b.Decode.ID)
	o.m.handoffTokens.WithLabelValues(from, to, "planned").Add(float64(planned))
	now := time.Now()
	if rec.Moved < 0 {
		o.tell(o.planner.Moved(h.b, now))
		return
	}
	kind := "moved"
	if rec.Unsure {
		kind = "unsure"
	}
	o.m.handoffTokens.WithLabelValues(from, to, kind).Add(float64(rec.Moved))
	switch {
	case planned <= block: // nothing worth a transfer
	case rec.Unsure:
		o.tell(o.planner.Moved(h.b, now))
	case rec.Moved == 0:
		o.m.unmoved.WithLabelValues(from, to).Inc()
		o.tell(o.planner.Failed(h.b, planner.Fault{On: planner.OnPair, Kind: outlier.Unmoved}, now))
	default:
		a.to.w.received.proved()
		o.tell(o.planner.Moved(h.b, now))
	}
}

// expectBlocks notes, when a split answer begins, what its decode engine has just loaded, so that its counters can be held against that.
func (a *answer) expectBlocks() {
	b := a.h.b
	if planned := a.h.j.rec.Prompt - b.MatchedDecode; a.split && planned > max(b.Decode.Facts.BlockSize, 1) {
		a.to.w.received.note(b.Prefill.ID, b.Decode.ID, planned)
	}
}

// received is what a decode server was to get from whom since its counters were read last. Safe for concurrent use.
type received struct {
	mu     sync.Mutex // guards the following
	from   map[outlier.Pair]int
	newest map[outlier.Pair]time.Time // that began, of each pair of late
	tokens int
	told   bool           // an answer told of blocks that came
	failed int            // attempts that failed at loading, which a counter is expected to show
	before bool           // some failed in the time between the two readings before
	doubts []outlier.Pair // at the last reading, for failed transfers that nobody has told of yet

	known          bool
	hits, failures float64 // the engine's counters as of then
}

// note counts a split answer that has begun.
func (r *received) note(prefill, decode replica.ID, tokens int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.from == nil {
		r.from = map[outlier.Pair]int{}
	}
	p := outlier.Pair{Prefill: prefill, Decode: decode}
	r.from[p]++
	r.tokens += tokens
	if r.newest == nil {
		r.newest = map[outlier.Pair]time.Time{}
	}
	r.newest[p] = time.Now()
}

// since reports whether a split answer of the pair has begun since then.
func (r *received) since(p outlier.Pair, then time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.newest[p].Before(then)
}

// proved notes that an answer told of blocks that came.
func (r *received) proved() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = true
}

// noteFailed counts an attempt that failed at loading.
func (r *received) noteFailed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed++
}

// enough is how many answers a counter must have had the time to show.
const enough = 3

// read compares the engine's counters with what they were, and returns the pairs whose transfers they do not show, or show to have failed without a word to
// us. NaN is unknown. An engine counts a failed transfer before or after its answer tells us of it, so that the words of the readings before and after count.
func (r *received) read(m engine.Metrics) (doubtful []outlier.Pair, why string) {
	hits, failures := 0.0, 0.0
	for i := range m.Ranks {
		hits += m.Ranks[i].Counters.ExternalHits
		failures += m.Ranks[i].Counters.NIXLFailedTransfers
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	answers := 0
	for _, n := range r.from {
		answers += n
	}
	failed, idle := failures > r.failures && r.failed == 0 && !r.before, hits == r.hits
	if r.failed == 0 && len(r.doubts) > 0 {
		doubtful, why = r.doubts, "the engine counts failed transfers that no answer told of"
	}
	r.before, r.doubts = r.failed > 0, nil
	if r.known && !failed && idle && answers > 0 && answers < enough {
		r.failures, r.failed = failures, 0
		return doubtful, why // too few to tell: they stay
	}
	if r.known && failed {
		r.doubts = slices.Collect(maps.Keys(r.from))
	}
	if r.known && answers >= enough && r.tokens > 0 && idle && !r.told {
		doubtful, why = slices.Collect(maps.Keys(r.from)), "the engine counts no token that came from another one"
	}
	r.known, r.hits, r.failures = true, hits, failures
	clear(r.from)
	maps.DeleteFunc(r.newest, func(_ outlier.Pair, at time.Time) bool { return time.Since(at) > time.Minute })
	r.tokens, r.failed, r.told = 0, 0, false
	return doubtful, why
}

// doubt asks for a trial of the pairs whose transfers the engine's counters do not show.
func (w *watcher) doubt(m engine.Metrics) {
	if w.role != replica.Decode {
		return
	}
	pairs, why := w.received.read(m)
	for _, p := range pairs {
		if w.f.o.planner.Outliers().Suspect(p, time.Now()) {
			w.f.o.log.Warn("a pair is tried, since nothing shows that its blocks move", "prefill", string(p.Prefill), "decode", string(p.Decode), "why", why)
		}
	}
}
