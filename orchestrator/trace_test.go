package orchestrator

import (
	"net/http"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/orchestrator/observe"
)

// Each leg carries the W3C context of its own span, so that the engine's spans join the request's trace.
// Without tracing there is no such header.
func TestTraceContextGoesToTheEngines(t *testing.T) {
	provider := sdktrace.NewTracerProvider()
	defer func() { _ = provider.Shutdown(t.Context()) }()
	o := &Orchestrator{}
	o.spans = observe.NewTracer(provider)
	request, span := o.spans.Step(t.Context(), "POST /v1/completions")
	defer span.End()
	for _, name := range []string{"prefill", "decode"} {
		ctx, leg := o.spans.Step(request, name)
		own := trace.SpanContextFromContext(ctx)
		r := o.spans.Propagate(ctx, &engine.Request{}, nil)
		leg.End()
		want := engine.Field{
			Key: "traceparent", Value: "00-" + own.TraceID().String() + "-" + own.SpanID().String() + "-01",
		}
		if len(r.Header) != 1 || r.Header[0] != want {
			t.Errorf("%s leg has %v, want %v", name, r.Header, want)
		}
		if own.TraceID() != trace.SpanContextFromContext(request).TraceID() {
			t.Errorf("the %s span belongs to another trace", name)
		}
	}
	o.spans = observe.NewTracer(nil)
	if r := o.spans.Propagate(request, &engine.Request{}, nil); len(r.Header) != 0 {
		t.Errorf("without tracing the leg has %v", r.Header)
	}
}

// The client's own trace context reaches the engines with and without tracing, on both legs and on unsplit
// requests.
func TestTheClientsTraceContextGoesOn(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, tt := range []struct {
		name       string
		sent, want http.Header
	}{
		{"nothing", nil, nil},
		{
			"all",
			http.Header{"Traceparent": {parent}, "Tracestate": {"a=1", "b=2"}, "Baggage": {"user=x"}},
			http.Header{"Traceparent": {parent}, "Tracestate": {"a=1,b=2"}, "Baggage": {"user=x"}},
		},
		{"two parents", http.Header{"Traceparent": {parent, parent}, "Tracestate": {"a=1"}}, nil},
		{"a state alone", http.Header{"Tracestate": {"a=1"}}, nil},
		{
			"too much",
			http.Header{"Traceparent": {parent}, "Baggage": {strings.Repeat("x", observe.MaxContext), "y"}},
			http.Header{"Traceparent": {parent}},
		},
	} {
		in(t, setup{options: func(o *Options) { o.Tracer = nil }}, func(w *world) {
			for _, p := range []prompt{
				chat(true), completion(false), post("/v1/embeddings", `{"model":"sim","input":"a"}`),
			} {
				p.header = tt.sent
				w.ask(p)
			}
			legs := w.posts(false)
			if len(legs) != 5 {
				t.Fatalf("%d legs, want 5", len(legs))
			}
			for _, leg := range legs {
				for _, key := range []string{"Traceparent", "Tracestate", "Baggage"} {
					if got, want := leg.header.Get(key), tt.want.Get(key); got != want {
						t.Errorf("%s: %s of %s is %q, want %q", tt.name, key, leg.path, got, want)
					}
				}
			}
		})
	}
}

// With tracing, the client's parent becomes the parent of the router's span, and its baggage is passed on.
func TestBaggageGoesOnWhereWeTrace(t *testing.T) {
	provider := sdktrace.NewTracerProvider()
	defer func() { _ = provider.Shutdown(t.Context()) }()
	o := &Orchestrator{}
	o.spans = observe.NewTracer(provider)
	ctx, span := o.spans.Step(t.Context(), "prefill")
	defer span.End()
	sent := http.Header{
		"Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, "Baggage": {"user=x"},
	}
	r := o.spans.Propagate(ctx, &engine.Request{}, sent)
	if len(r.Header) != 2 || r.Header[0].Value == sent.Get("Traceparent") ||
		r.Header[1] != (engine.Field{Key: "baggage", Value: "user=x"}) {
		t.Errorf("the leg has %v", r.Header)
	}
}
