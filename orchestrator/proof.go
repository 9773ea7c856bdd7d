package orchestrator

import (
	"time"

	"github.com/tandem-router/tandem/orchestrator/outlier"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// A split does not prove a transfer. An engine without the connector answers well but late. So does an engine
// that recomputes blocks that it could not load. Then the prefill is useless, and nothing shows it. So each
// split answer is compared with its decode engine's report of cached tokens. Without a report, the engine's
// own counters are used.

// prove counts the planned and the real transfer of a split answer, by pair, and reports to the planner
// whether anything was transferred. Cached tokens beyond the predicted match prove a transfer only if the
// earlier match is known. Otherwise the answer proves nothing, and the engine's counters decide.
func (a *answer) prove() {
	a.proveStore()
	h := a.h
	if !a.split() || a.first.IsZero() {
		return
	}
	j, rec := a.j, a.j.rec
	planned, block := max(0, rec.Prompt-h.b.MatchedDecode), max(h.b.Decode.Facts.BlockSize, 1)
	rec.Planned = planned
	if a.usage.reportedCached >= 0 && j.plan.Sequences <= 1 {
		rec.Moved = max(0, a.usage.reportedCached-h.b.MatchedDecode)
		rec.Unsure = rec.Moved > 0 && !h.b.Sure()
	}
	from, to := string(h.b.Prefill.ID), string(h.b.Decode.ID)
	j.m.Handoffs.Tokens.WithLabelValues(from, to, "planned").Add(float64(planned))
	now := time.Now()
	if rec.Moved < 0 {
		j.trials.Announce(h.b.Moved(now))
		return
	}
	kind := "moved"
	if rec.Unsure {
		kind = "unsure"
	}
	j.m.Handoffs.Tokens.WithLabelValues(from, to, kind).Add(float64(rec.Moved))
	switch {
	case planned <= max(block, a.storeChunk()): // nothing worth a transfer
	case rec.Unsure:
		j.trials.Announce(h.b.Moved(now))
	case rec.Moved == 0:
		j.m.Handoffs.Unmoved.WithLabelValues(from, to).Inc()
		j.trials.Announce(h.b.Failed(planner.Fault{On: planner.OnPair, Kind: outlier.Unmoved}, now))
	default:
		a.to.Transfers().Shown()
		j.trials.Announce(h.b.Moved(now))
	}
}

// proveStore compares what a store should have given with what the decode engine found cached, by its report
// alone. A store that did not give everything is not believed to have this prompt: the next request with this
// prompt is prefilled.
func (a *answer) proveStore() {
	j, b := a.j, a.h.b
	rec, had := j.rec, a.usage.reportedCached
	if !j.byContent() || !a.split() && b.Stored() == 0 || had < 0 || j.plan.Sequences > 1 || a.first.IsZero() {
		return
	}
	block := max(b.Decode.Facts.BlockSize, 1)
	rec.Missed = max(0, (rec.Prompt-1)/block*block-had)
	j.m.Handoffs.Tokens.WithLabelValues(string(b.Prefill.ID), string(b.Decode.ID), "missed").
		Add(float64(rec.Missed))
	r := planner.Report{Own: b.MatchedDecode, Cached: had, Alone: b.Stored() > 0}
	if r.Alone {
		r.Own -= int(b.Decision.Plans[0].OnDecode.Below.Shared)
	}
	j.planner.Store().Gave(&j.plan, r, time.Now())
}

// storeChunk returns the least number of tokens that a store surely keeps, 0 where there is no store.
func (a *answer) storeChunk() int {
	if !a.j.byContent() {
		return 0
	}
	return storeChunk
}

// storeChunk is the largest usual unit of a store, in tokens: LMCache keeps nothing of a shorter prompt.
const storeChunk = 256

// expectBlocks records, at the begin of a split answer, the transfer that its decode engine has just made,
// for the comparison with its counters.
func (a *answer) expectBlocks() {
	b := a.h.b
	if planned := a.j.rec.Prompt - b.MatchedDecode; a.split() && planned > max(b.Decode.Facts.BlockSize, 1) {
		a.to.Transfers().Began(b.Prefill.ID, b.Decode.ID, planned)
	}
}
