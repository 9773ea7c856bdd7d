package orchestrator

import (
	"time"

	"github.com/tandem-router/tandem/orchestrator/outlier"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// That a request was split does not prove that its blocks came over: an engine whose connector is missing, or
// which computes again what it could not load, answers well and late, and nobody notices that the prefill was
// for nothing. So each split answer is held against what its decode engine says it had cached, and where it
// says nothing, the engine's own counters are.

// prove counts what a split answer was to bring and what came of it, by pair, and tells the planner whether
// anything moved. What its engine had cached beyond what we believed proves that only where we know what it
// held: else it is as if the answer told nothing, and the engine's counters decide.
func (a *answer) prove() {
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
		j.trials.Announce(j.planner.Moved(h.b, now))
		return
	}
	kind := "moved"
	if rec.Unsure {
		kind = "unsure"
	}
	j.m.Handoffs.Tokens.WithLabelValues(from, to, kind).Add(float64(rec.Moved))
	switch {
	case planned <= block: // nothing worth a transfer
	case rec.Unsure:
		j.trials.Announce(j.planner.Moved(h.b, now))
	case rec.Moved == 0:
		j.m.Handoffs.Unmoved.WithLabelValues(from, to).Inc()
		j.trials.Announce(j.planner.Failed(h.b, planner.Fault{On: planner.OnPair, Kind: outlier.Unmoved}, now))
	default:
		a.to.Transfers().Shown()
		j.trials.Announce(j.planner.Moved(h.b, now))
	}
}

// expectBlocks notes, when a split answer begins, what its decode engine has just loaded, so that its
// counters can be held against that.
func (a *answer) expectBlocks() {
	b := a.h.b
	if planned := a.j.rec.Prompt - b.MatchedDecode; a.split() && planned > max(b.Decode.Facts.BlockSize, 1) {
		a.to.Transfers().Began(b.Prefill.ID, b.Decode.ID, planned)
	}
}
