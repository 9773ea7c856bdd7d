package observe

import (
	"context"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/tandem-router/tandem/internal/engine"
)

// Tracer opens the spans of requests. A nil Tracer, or one without a provider, records nothing and costs
// nothing. Safe for concurrent use.
type Tracer struct {
	tracer trace.Tracer
	on     bool // whether tracer records anything
}

// NewTracer makes a tracer from p; with nil it traces nothing.
func NewTracer(p trace.TracerProvider) *Tracer {
	if p == nil {
		p = noop.NewTracerProvider()
	}
	_, silent := p.(noop.TracerProvider)
	return &Tracer{tracer: p.Tracer("tandem"), on: !silent}
}

// On reports whether t records spans.
func (t *Tracer) On() bool { return t != nil && t.on }

// Step is the span of a part of a request that is the router's own work. The zero value is for a router that
// does not trace, and costs nothing.
type Step struct{ span trace.Span }

// Step opens a span under the one of ctx.
func (t *Tracer) Step(ctx context.Context, name string) (context.Context, Step) {
	if !t.On() {
		return ctx, Step{}
	}
	ctx, s := t.tracer.Start(ctx, name)
	return ctx, Step{s}
}

// On reports whether attributes are recorded.
func (s Step) On() bool { return s.span != nil }

// Set adds attributes.
func (s Step) Set(attrs ...attribute.KeyValue) {
	if s.span != nil {
		s.span.SetAttributes(attrs...)
	}
}

// End ends the span.
func (s Step) End() {
	if s.span != nil {
		s.span.End()
	}
}

// Start opens a span with its own options. Call it only while [Tracer.On].
func (t *Tracer) Start(
	ctx context.Context, name string, opts ...trace.SpanStartOption,
) (context.Context, trace.Span) {
	return t.tracer.Start(ctx, name, opts...)
}

// Between adds a span for a time that has passed. Call it only while [Tracer.On].
func (t *Tracer) Between(
	ctx context.Context, name string, begins, ends time.Time, attrs ...attribute.KeyValue,
) {
	_, s := t.tracer.Start(ctx, name, trace.WithTimestamp(begins), trace.WithAttributes(attrs...))
	s.End(trace.WithTimestamp(ends))
}

// Propagate adds the W3C trace context to a request to an engine, so that both engines' spans join the
// request's trace. If this router traces, the context is that of its own span, a child of the client's.
// Otherwise it is the client's own context, unchanged. The client's baggage is added in both cases.
func (t *Tracer) Propagate(
	ctx context.Context, r *engine.Request, client http.Header,
) *engine.Request {
	if t.On() {
		propagation.TraceContext{}.Inject(ctx, carrier{r})
	} else if parent := client.Values("Traceparent"); len(parent) == 1 {
		passContext(r, "traceparent", parent)
		passContext(r, "tracestate", client.Values("Tracestate"))
	}
	passContext(r, "baggage", client.Values("Baggage"))
	return r
}

// MaxContext limits a field of a client's trace context, as W3C's baggage does, because engines accept heads
// of a limited length.
const MaxContext = 8 << 10

// passContext sets a field to the joined values of the client's lines. A value that is too long is omitted as
// a whole, because half a value would have another meaning.
func passContext(r *engine.Request, key string, lines []string) {
	if value := strings.Join(lines, ","); value != "" && len(value) <= MaxContext {
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
