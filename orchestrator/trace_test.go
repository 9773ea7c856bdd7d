package orchestrator

import (
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"tandem/internal/engine"
)

// Both legs carry the W3C context of their own span, so that the engines' spans join the request's trace. Without tracing there is no such header.
func TestTraceContextGoesToTheEngines(t *testing.T) {
	provider := sdktrace.NewTracerProvider()
	defer func() { _ = provider.Shutdown(t.Context()) }()
	o := &Orchestrator{}
	o.traceWith(provider)
	request, endRequest := o.span(t.Context(), "tandem /v1/completions")
	defer endRequest()
	for _, name := range []string{"prefill", "decode"} {
		ctx, end := o.span(request, name)
		own := trace.SpanContextFromContext(ctx)
		r := o.propagate(ctx, &engine.Request{})
		end()
		want := engine.Field{Key: "traceparent", Value: "00-" + own.TraceID().String() + "-" + own.SpanID().String() + "-01"}
		if len(r.Header) != 1 || r.Header[0] != want {
			t.Errorf("%s leg has %v, want %v", name, r.Header, want)
		}
		if own.TraceID() != trace.SpanContextFromContext(request).TraceID() {
			t.Errorf("the %s span is of another trace", name)
		}
	}
	o.traceWith(nil)
	if r := o.propagate(request, &engine.Request{}); len(r.Header) != 0 {
		t.Errorf("without tracing the leg has %v", r.Header)
	}
}
