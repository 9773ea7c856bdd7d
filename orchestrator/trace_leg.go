package orchestrator

import (
	"net/http"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/orchestrator/observe"
)

// endPrefill ends the span of a prefill leg.
func endPrefill(span observe.LegSpan, answer *openai.PrefillAnswer, f *failure) {
	status := 0
	switch {
	case f == nil:
		status = http.StatusOK
	case f.own():
		status = f.reply.status
	}
	span.Prefilled(f.onSpan(), status, answer.CachedTokens)
}

// traceBegun adds the time of the first token to the request's span, and adds a span for the transfer of KV
// blocks. transfer is the planner's time for it; 0 for unknown. The first token of an answer that is not
// streamed is not seen, and a request of several prompts has several first tokens.
func (a *answer) traceBegun(transfer time.Duration) {
	j := a.j
	if !j.spans.On() || !j.req.Stream {
		return
	}
	if j.rest.delivered == nil && !j.req.Batched {
		j.span.AddEvent("first_token", trace.WithTimestamp(a.first))
		j.span.SetAttributes(observe.AttrTTFT.Float64(ms(a.first.Sub(j.start))))
	}
	if transfer <= 0 || a.h.atOnce() { // if both legs run at once, the time includes the prefill
		return
	}
	step := a.h.b.DecodeLease.StepTime()
	ends := a.first.Add(-time.Duration(step * float64(time.Second)))
	j.spans.Between(a.spanCtx, "kv transfer", ends.Add(-transfer), ends,
		observe.AttrPrefill.String(string(a.h.b.Prefill.ID)), observe.AttrDecode.String(string(a.h.b.Decode.ID)),
		observe.AttrTokens.Int(max(0, j.rec.Prompt-a.h.b.MatchedDecode)))
}

// endSpan ends the span of the leg that makes a, once. While a parallel prefill leg runs, that leg writes the
// record.
func (a *answer) endSpan() {
	if !a.span.On() {
		return
	}
	status := 0
	if a.resp != nil {
		status = a.resp.Status
	}
	if a.first.IsZero() {
		a.span.Answered(status, nil)
		return
	}
	of := &observe.Answered{Output: a.usage.output, Prompt: a.usage.promptTokens, Cached: -1, Said: a.said}
	if of.Prompt <= 0 && a.j.counted() {
		of.Prompt = a.j.count
	}
	if !a.h.prefillRuns() {
		of.Cached = a.j.rec.Delivered
	}
	a.span.Answered(status, of)
}
