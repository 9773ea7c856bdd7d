package orchestrator

import (
	"context"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/orchestrator/observe"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// step is the span of a part of a request that is the router's own work. Its zero value is that of a router
// that does not trace, and costs nothing.
type step struct{ span trace.Span }

// step opens a span under the one of ctx.
func (o *Orchestrator) step(ctx context.Context, name string) (context.Context, step) {
	if !o.traced {
		return ctx, step{}
	}
	ctx, s := o.tracer.Start(ctx, name)
	return ctx, step{s}
}

// on reports whether anybody will see what is set.
func (s step) on() bool { return s.span != nil }

func (s step) end() {
	if s.span != nil {
		s.span.End()
	}
}

// propagate puts the W3C trace context on a request to an engine, so that both engines' spans join the
// request's trace: ours, a child of the client's, where we trace, else the client's own as it came. The
// client's baggage goes along in both cases.
func (o *Orchestrator) propagate(ctx context.Context, r *engine.Request, client http.Header) *engine.Request {
	if o.traced {
		propagation.TraceContext{}.Inject(ctx, carrier{r})
	} else if parent := client.Values("Traceparent"); len(parent) == 1 {
		passContext(r, "traceparent", parent)
		passContext(r, "tracestate", client.Values("Tracestate"))
	}
	passContext(r, "baggage", client.Values("Baggage"))
	return r
}

// maxContext bounds a field of a client's trace context, as W3C's baggage does: engines take heads of a
// limited length.
const maxContext = 8 << 10

// passContext sets a field to what the client's lines of it say together. What is too long is left out as a
// whole, since half of it would say something else.
func passContext(r *engine.Request, key string, lines []string) {
	if value := strings.Join(lines, ","); value != "" && len(value) <= maxContext {
		r.Header = append(r.Header, engine.Field{Key: key, Value: value})
	}
}

// carrier writes trace headers into an engine request.
type carrier struct{ r *engine.Request }

func (c carrier) Get(string) string { return "" }
func (c carrier) Keys() []string    { return nil }
func (c carrier) Set(key, value string) {
	c.r.Header = append(c.r.Header, engine.Field{Key: key, Value: value})
}

// termAttributes are the terms of the chosen plan, in milliseconds.
func termAttributes(d *planner.Decision) []attribute.KeyValue {
	attrs := []attribute.KeyValue{
		attrPredictedTTFT.Float64(d.TTFT),
		attrAvailable.Int(d.Available),
		attrHeld.Int(d.Held), attrPlansCompared.Int(d.Compared),
		attrBlind.Int(d.Blind), attrTruncated.Int(d.Truncated),
		attrMatchGuessed.Bool(d.Guessed),
	}
	if len(d.Plans) > 0 {
		for name, value := range d.Plans[0].Terms.All() {
			attrs = append(attrs, attribute.Float64(attrTerm+name, value))
		}
	}
	return attrs
}

// truthAttributes are what was cached somewhere, what the plan made of it, what the engine got, and why that
// was not in pieces. What is unknown has no attribute.
func truthAttributes(r *observe.Record) []attribute.KeyValue {
	var attrs []attribute.KeyValue
	for _, x := range [...]struct {
		key    attribute.Key
		tokens int
	}{
		{attrAvailable, r.Available},
		{attrCaptured, r.Captured},
		{attrDelivered, r.Delivered},
	} {
		if x.tokens >= 0 {
			attrs = append(attrs, x.key.Int(x.tokens))
		}
	}
	if r.Whole != "" {
		attrs = append(attrs, attrWhole.String(r.Whole))
	}
	return attrs
}
