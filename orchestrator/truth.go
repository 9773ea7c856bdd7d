package orchestrator

import (
	"math"

	"go.opentelemetry.io/otel/attribute"

	"tandem/internal/openai"
	"tandem/orchestrator/planner"
)

// note writes the plan into the record.
func (j *job) note(b *planner.Booking) {
	j.rec.Mode, j.rec.Prefill, j.rec.Decode = modeName(b, j.req), string(b.Prefill.ID), string(b.Decode.ID)
	j.rec.Captured = b.MatchedPrefill
	if b.Mode == planner.Local {
		j.rec.Captured = b.MatchedDecode
	}
	j.rec.Prompt = j.count
	if d := b.Decision; d != nil {
		j.rec.Reason, j.rec.Available, j.rec.Decision = d.Reason, d.Available, d
		j.q.o.m.decisions.WithLabelValues(j.rec.Mode, why(j.rec)).Inc()
	}
}

// why names in one word what made the plan good, for the metric.
func why(r *Record) string {
	switch {
	case r.Mode == "unsplit":
		return "cannot_split"
	case r.Captured > 0 && r.Captured >= r.Available:
		return "deepest_match"
	case r.Captured > 0:
		return "match_and_load"
	case r.Available > 0:
		return "load_over_match"
	}
	return "load"
}

func modeName(b *planner.Booking, req *openai.Request) string {
	switch {
	case b.Mode == planner.Split:
		return "split"
	case req.Unsplittable != "":
		return "unsplit"
	}
	return "local"
}

// decisionAttributes puts the decision's terms on the span.
func decisionAttributes(b *planner.Booking, traced bool) []attribute.KeyValue {
	if !traced || b.Decision == nil {
		return nil
	}
	return append([]attribute.KeyValue{
		attribute.String("tandem.prefill", string(b.Prefill.ID)), attribute.String("tandem.decode", string(b.Decode.ID)),
		attribute.Int("tandem.matched_tokens", b.MatchedPrefill), attribute.String("tandem.reason", b.Decision.Reason),
	}, termAttributes(b.Decision)...)
}

// countTokens moves the token counters of an answer that ended well.
func (j *job) countTokens(a *answer, f *failure) {
	if f != nil {
		return
	}
	m := j.q.o.m
	m.tokens.WithLabelValues("prompt").Add(float64(j.rec.Prompt))
	m.tokens.WithLabelValues("output").Add(float64(j.rec.Output))
	m.cached.WithLabelValues("available").Add(float64(j.rec.Available))
	m.cached.WithLabelValues("captured").Add(float64(j.rec.Captured))
	if j.rec.Delivered >= 0 {
		m.cached.WithLabelValues("delivered").Add(float64(j.rec.Delivered))
		if a.split {
			m.predictErr.Observe(math.Abs(float64(j.rec.Captured - j.rec.Delivered)))
		}
	}
}
