package observe

import (
	"go.opentelemetry.io/otel/attribute"

	"github.com/tandem-router/tandem/orchestrator/planner"
)

// DecisionAttributes returns the choice and its terms, for the span of a plan.
func DecisionAttributes(b *planner.Booking) []attribute.KeyValue {
	if b.Decision == nil {
		return nil
	}
	return append([]attribute.KeyValue{
		AttrPrefill.String(string(b.Prefill.ID)),
		AttrDecode.String(string(b.Decode.ID)),
		AttrMatched.Int(b.Decision.Matched),
		AttrReason.String(b.Decision.Reason),
	}, termAttributes(b.Decision)...)
}

// termAttributes returns the terms of the chosen plan in milliseconds.
func termAttributes(d *planner.Decision) []attribute.KeyValue {
	attrs := []attribute.KeyValue{
		AttrPredictedTTFT.Float64(d.TTFT),
		AttrAvailable.Int(d.Available),
		AttrHeld.Int(d.Held), AttrPlansCompared.Int(d.Compared),
		AttrBlind.Int(d.Blind), AttrTruncated.Int(d.Truncated),
		AttrMatchGuessed.Bool(d.Guessed),
	}
	if len(d.Plans) > 0 {
		for name, value := range d.Plans[0].Terms.All() {
			attrs = append(attrs, attribute.Float64(AttrTerm+name, value))
		}
	}
	return attrs
}

// TruthAttributes says what was cached on any replica, how much of the cache the plan used, how much the
// engine reported, and why the prompt was not sent in pieces. An unknown value has no attribute.
func TruthAttributes(r *Record) []attribute.KeyValue {
	var attrs []attribute.KeyValue
	for _, x := range [...]struct {
		key    attribute.Key
		tokens int
	}{
		{AttrAvailable, r.Available},
		{AttrCaptured, r.Captured},
		{AttrDelivered, r.Delivered},
	} {
		if x.tokens >= 0 {
			attrs = append(attrs, x.key.Int(x.tokens))
		}
	}
	if r.Whole != "" {
		attrs = append(attrs, AttrWhole.String(r.Whole))
	}
	return attrs
}
