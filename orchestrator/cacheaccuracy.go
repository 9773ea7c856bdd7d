package orchestrator

import (
	"strconv"

	"go.opentelemetry.io/otel/attribute"

	"tandem/internal/openai"
	"tandem/orchestrator/planner"
)

// recordPlan writes the plan into the record.
func (j *job) recordPlan(b *planner.Booking) {
	j.rec.Mode = modeName(b, j.whole)
	j.rec.Prefill = string(b.Prefill.ID)
	j.rec.Decode = string(b.Decode.ID)
	j.rec.Prompt = j.count
	j.rec.Available = -1
	j.rec.Captured = -1
	j.rec.Delivered = -1
	j.rec.Moved = -1 // an attempt before may have set them
	d := b.Decision
	if d == nil {
		return
	}
	j.rec.Reason = d.Reason
	j.rec.Blind = d.Blind
	j.rec.Decision = d
	j.noteWhy(j.whole)
	if j.named() {
		j.rec.Available = d.Available
	}
	switch {
	case j.anyRank(b): // the match is of one rank
	case j.req.Uncached:
		j.rec.Captured = 0
	case !d.Guessed:
		j.rec.Captured = d.Matched
	}
	j.q.o.m.decided(j.rec, d)
}

// anyRank reports whether the engine itself chooses the rank that prefills: vLLM 0.32 does not look at
// X-Data-Parallel-Rank on /v1/responses.
func (j *job) anyRank(b *planner.Booking) bool {
	return j.req.Kind == openai.Responses && b.Mode == planner.Local && b.Decode.Pinned()
}

// noteWhy adds to the record why the request went whole to one replica.
func (j *job) noteWhy(why string) {
	if why != "" {
		j.rec.Reason += "; not split: " + why
	}
}

// named reports whether the prompt's blocks have keys, without which no index can be asked.
func (j *job) named() bool { return j.plan.PrefillKeys != nil || j.plan.DecodeKeys != nil }

// decided counts a plan that was booked.
func (m *metrics) decided(r *Record, d *planner.Decision) {
	m.decisions.WithLabelValues(r.Mode, reasonLabel(r, d)).Inc()
	if s := d.Shadow; s != nil {
		m.shadow.WithLabelValues(map[bool]string{true: "same", false: "other"}[s.Same]).Inc()
		m.regret.Observe(s.Regret / 1e3)
	}
	if d.Forced != "" {
		m.forced.Inc()
	}
	if d.Blind > 0 {
		m.partial.WithLabelValues("blind").Inc()
	}
	if d.Truncated > 0 {
		m.partial.WithLabelValues("truncated").Inc()
	}
}

// reasonLabel names in one word what made the plan good, for the metric: the decision's own word, or that it
// had no choice but to leave the request whole.
func reasonLabel(r *Record, d *planner.Decision) string {
	if r.Mode == "unsplit" {
		return "cannot_split"
	}
	return d.Why
}

func modeName(b *planner.Booking, whole string) string {
	switch {
	case b.Mode == planner.Split:
		return "split"
	case whole != "":
		return "unsplit"
	}
	return "local"
}

// decisionAttributes puts the decision's terms on the span.
func decisionAttributes(b *planner.Booking) []attribute.KeyValue {
	if b.Decision == nil {
		return nil
	}
	return append([]attribute.KeyValue{
		attrPrefill.String(string(b.Prefill.ID)),
		attrDecode.String(string(b.Decode.ID)),
		attrMatched.Int(b.Decision.Matched),
		attrReason.String(b.Decision.Reason),
	}, termAttributes(b.Decision)...)
}

// countTokens compares what was cached somewhere, what the plan made of it and what the engine says it got,
// for an answer that ended well.
func (j *job) countTokens(a *answer, f *failure) {
	if f != nil {
		return
	}
	m, r := j.q.o.m, j.rec
	m.tokens.WithLabelValues("prompt").Add(float64(r.Prompt))
	m.tokens.WithLabelValues("output").Add(float64(r.Output))
	m.observeCache(r, a.split)
	if j.q.o.traced {
		j.q.span.SetAttributes(truthAttributes(r)...)
	}
}

// observeCache moves the counters of the three numbers. Each ratio of them must be over the same requests,
// so a request for which one of the first two is unknown counts in neither, and told keeps those apart for
// which the engine gave no number.
func (m *metrics) observeCache(r *Record, split bool) {
	switch {
	case r.Available < 0:
		m.unmeasured.WithLabelValues("no_ids").Inc()
		return
	case r.Captured < 0:
		m.unmeasured.WithLabelValues("blind").Inc()
		return
	case r.Delivered < 0:
		m.unmeasured.WithLabelValues("not_told").Inc()
	}
	reported := strconv.FormatBool(r.Delivered >= 0)
	m.cached.WithLabelValues("prompt", r.Mode, reported).Add(float64(r.Prompt))
	m.cached.WithLabelValues("available", r.Mode, reported).Add(float64(r.Available))
	m.cached.WithLabelValues("captured", r.Mode, reported).Add(float64(r.Captured))
	m.matchLoss.WithLabelValues(r.Mode).Observe(float64(max(0, r.Available-r.Captured)))
	if r.Delivered >= 0 {
		m.cached.WithLabelValues("delivered", r.Mode, reported).Add(float64(r.Delivered))
		m.predicted(r.Captured-r.Delivered, split)
	}
}

// predicted observes by how many tokens the index promised too much, or too little where over is below zero.
func (m *metrics) predicted(over int, split bool) {
	pool, direction := "decode", "exact"
	if split {
		pool = "prefill"
	}
	switch {
	case over > 0:
		direction = "over"
	case over < 0:
		direction, over = "under", -over
	}
	m.predictErr.WithLabelValues(pool, direction).Observe(float64(over))
}
