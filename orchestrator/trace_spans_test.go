package orchestrator

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/observe"
)

// traced runs story in a world with tracing, and returns the spans of its requests.
func traced(t *testing.T, s setup, story func(w *world)) tracetest.SpanStubs {
	t.Helper()
	kept := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(kept))
	defer func() { _ = provider.Shutdown(t.Context()) }()
	s.options = func(o *Options) { o.Tracer = provider }
	in(t, s, story)
	return kept.GetSpans()
}

// attributesOf returns a span's attributes as text.
func attributesOf(s *tracetest.SpanStub) map[string]string {
	all := map[string]string{}
	for _, a := range s.Attributes {
		all[string(a.Key)] = a.Value.String()
	}
	return all
}

// ofKind returns the spans of a kind in the order of their start.
func ofKind(all tracetest.SpanStubs, kind trace.SpanKind) (spans []tracetest.SpanStub) {
	for _, s := range all {
		if s.SpanKind == kind {
			spans = append(spans, s)
		}
	}
	slices.SortStableFunc(spans, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	return spans
}

// wantAttributes compares those attributes of a span that want names; "" means that the attribute must be
// missing.
func wantAttributes(t *testing.T, s *tracetest.SpanStub, want map[attribute.Key]string) {
	t.Helper()
	got := attributesOf(s)
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if value, there := got[string(key)]; value != want[key] || there == (want[key] == "") {
			t.Errorf("%s: %s is %q, want %q", s.Name, key, value, want[key])
		}
	}
}

// A split request has a server span with two client spans below, one for each leg, with the leg's engine.
// Only the decode leg has the token counts of the answer.
func TestSpansOfASplitRequestFollowTheConventions(t *testing.T) {
	for _, p := range []prompt{chat(true), completion(true), chat(false), completion(false)} {
		p.body = strings.Replace(p.body, `"temperature":0,`,
			`"temperature":0,"top_p":0.5,"top_k":7,"seed":3,"presence_penalty":0.25,"stop":["\nEnd"],`, 1)
		stream := fmt.Sprint(strings.Contains(p.body, `"stream":true`))
		spans := traced(t, setup{}, func(w *world) {
			if got := w.ask(p); got.status != http.StatusOK {
				t.Fatalf("%s: status %d", p.path, got.status)
			}
		})
		server, legs := ofKind(spans, trace.SpanKindServer), ofKind(spans, trace.SpanKindClient)
		if len(server) != 1 || len(legs) != 2 {
			t.Fatalf("%s: %d server spans and %d client spans, want 1 and 2", p.path, len(server), len(legs))
		}
		if want := "POST " + p.path; server[0].Name != want {
			t.Errorf("the server span is called %q, want %q", server[0].Name, want)
		}
		wantAttributes(t, &server[0], map[attribute.Key]string{
			observe.AttrMethod: "POST", observe.AttrRoute: p.path, observe.AttrPath: p.path,
			observe.AttrScheme: "http", observe.AttrVersion: "1.1",
			observe.AttrStatus: "200", observe.AttrErrorType: "", observe.AttrMode: "split",
			observe.AttrOutcome: "ok", observe.AttrModel: "sim",
			observe.AttrOutputTokens: "",
		})
		does := "chat"
		if p.path == "/v1/completions" {
			does = "text_completion"
		}
		prefill, decode := &legs[0], &legs[1]
		for s, name := range map[*tracetest.SpanStub]string{prefill: "prefill sim", decode: does + " sim"} {
			if s.Name != name || s.Parent.SpanID() != server[0].SpanContext.SpanID() {
				t.Errorf("a leg's span is called %q below %s, want %q below the server span",
					s.Name, s.Parent.SpanID(), name)
			}
			at := attributesOf(s)
			if host, want := at[string(observe.AttrAddress)], at[string(observe.AttrReplica)]; host == "" ||
				!strings.HasPrefix(want, strings.Split(host, ".")[0]) && !strings.Contains(want, host) {
				t.Errorf("%s: %s is %q for the replica %q", s.Name, observe.AttrAddress, host, want)
			}
			wantAttributes(t, s, map[attribute.Key]string{
				observe.AttrPort: "8000", observe.AttrProvider: "vllm", observe.AttrModel: "sim",
				observe.AttrStatus: "200", observe.AttrErrorType: "",
			})
		}
		wantAttributes(t, prefill, map[attribute.Key]string{
			observe.AttrOperation: "prefill", observe.AttrLeg: "prefill", observe.AttrCachedTokens: "0",
			observe.AttrOutputTokens: "",
			observe.AttrInputTokens:  "", observe.AttrTemperature: "",
		})
		wantAttributes(t, decode, map[attribute.Key]string{
			observe.AttrOperation: does, observe.AttrLeg: "decode", observe.AttrStream: stream,
			observe.AttrMaxTokens: "12", observe.AttrTemperature: "0",
			observe.AttrTopP: "0.5", observe.AttrTopK: "7", observe.AttrSeed: "3", observe.AttrPresence: "0.25",
			observe.AttrFrequency: "",
			observe.AttrStop:      `["\nEnd"]`, observe.AttrOutputTokens: "12", observe.AttrCacheRead: "0",
			observe.AttrAnswerModel: "sim",
			observe.AttrFinish:      `["length"]`,
		})
		at := attributesOf(decode)
		if at[string(observe.AttrAnswerID)] == "" || at[string(observe.AttrInputTokens)] == "0" {
			t.Errorf("the decode leg lacks the answer's id or the prompt's length: %v", at)
		}
	}
}

// The span of a stream has the time of its first token. The KV transfer is a span below the decode leg
// that ends before the first token. An answer without a stream has neither.
func TestFirstTokenAndTransferInATrace(t *testing.T) {
	for _, stream := range []bool{true, false} {
		var first float64
		spans := traced(t, setup{}, func(w *world) {
			w.ask(completion(stream)) // the first answer of a replica only teaches its speed
			w.exact(completion(stream), w.ask(completion(stream)))
			first = w.o.ring.Newest(1)[0].Phases.First
		})
		servers, legs := ofKind(spans, trace.SpanKindServer), ofKind(spans, trace.SpanKindClient)
		server, decode := &servers[1], &legs[3]
		var moved []tracetest.SpanStub
		for _, s := range spans {
			if s.Name == "kv transfer" && s.SpanContext.TraceID() == server.SpanContext.TraceID() {
				moved = append(moved, s)
			}
		}
		ttft := attributesOf(server)[string(observe.AttrTTFT)]
		if !stream {
			if len(moved) > 0 || len(server.Events) > 0 || ttft != "" {
				t.Errorf("without a stream: %d transfers, %v, ttft %q", len(moved), server.Events, ttft)
			}
			continue
		}
		if len(server.Events) != 1 || server.Events[0].Name != "first_token" || ttft != fmt.Sprint(first) ||
			server.Events[0].Time.Sub(server.StartTime).Seconds()*1e3 != first {
			t.Errorf("events %v, ttft %s, want %v", server.Events, ttft, first)
		}
		if len(moved) != 1 || moved[0].Parent.SpanID() != decode.SpanContext.SpanID() {
			t.Fatalf("%d transfers, want one below the decode leg: %+v", len(moved), moved)
		}
		m := &moved[0]
		if took := m.EndTime.Sub(m.StartTime); took < transfer || took > 2*transfer ||
			m.StartTime.Before(decode.StartTime) || !m.EndTime.Before(server.Events[0].Time) {
			t.Errorf("the transfer took %v and began at %v, the leg began at %v", took, m.StartTime, decode.StartTime)
		}
		wantAttributes(t, m, map[attribute.Key]string{
			observe.AttrPrefill: attributesOf(&legs[2])[string(observe.AttrReplica)],
			observe.AttrDecode:  attributesOf(decode)[string(observe.AttrReplica)],
		})
	}
}

// A request to a single replica has one leg's span, and so has an unsplit request.
func TestSpansOfWhatIsNotSplit(t *testing.T) {
	for _, tt := range []struct {
		p    prompt
		name string
	}{
		{completion(true), "text_completion sim"},
		{post("/v1/messages", `{"model":"sim","max_tokens":4,"messages":[`+
			`{"role":"user","content":"hello"}]}`), "chat sim"},
		{post("/v1/embeddings", `{"model":"sim","input":"a"}`), "embeddings sim"},
		{post("/tokenize", `{"model":"sim","prompt":"a"}`), "POST"},
	} {
		spans := traced(t, setup{config: func(c *config.Config) { c.Local = config.LocalAlways }},
			func(w *world) {
				w.ask(tt.p)
				w.asked = w.count("tandem_requests_total", "")
			})
		legs := ofKind(spans, trace.SpanKindClient)
		if len(legs) != 1 || legs[0].Name != tt.name {
			t.Fatalf("%s: the legs are %v, want one called %q", tt.p.path, legs, tt.name)
		}
		wantAttributes(t, &legs[0],
			map[attribute.Key]string{observe.AttrPort: "8000", observe.AttrCachedTokens: ""})
	}
}

// A client's error is not an error of the server span. An engine's failure is an error of its leg's span,
// even if a retry succeeds.
func TestErrorsOnSpans(t *testing.T) {
	for _, tt := range []struct {
		name   string
		p      prompt
		status int
		failed bool
		kind   string
	}{
		{"unknown model", post("/v1/completions", `{"model":"other","prompt":"a"}`), 404, false, ""},
		{"bad body", post("/v1/completions", `{"model":`), 400, false, ""},
		{"engines fail", completion(true), 500, true, "status_500"},
	} {
		spans := traced(t, setup{}, func(w *world) {
			if tt.failed {
				for _, e := range w.p {
					fault(enginesim.Fault{Kind: "fail", Path: tt.p.path, Status: 500, Count: -1})(w, e)
				}
			}
			w.ask(tt.p)
		})
		server := ofKind(spans, trace.SpanKindServer)[0]
		wantAttributes(t, &server, map[attribute.Key]string{
			observe.AttrStatus: fmt.Sprint(tt.status), observe.AttrErrorType: tt.kind,
		})
		if got := server.Status.Code == codes.Error; got != tt.failed {
			t.Errorf("%s: the server span has status %v", tt.name, server.Status)
		}
		for _, leg := range ofKind(spans, trace.SpanKindClient) {
			if leg.Status.Code != codes.Error {
				t.Errorf("%s: a leg's span has status %v", tt.name, leg.Status)
			}
			wantAttributes(t, &leg,
				map[attribute.Key]string{observe.AttrErrorType: "status_500", observe.AttrStatus: "500"})
		}
	}
}

// Without tracing, the spans of a request allocate no memory.
func TestSpansCostNothingWithoutTracing(t *testing.T) {
	o := &env{telemetry: telemetry{spans: observe.NewTracer(nil)}}
	j := &job{env: o, rec: &observe.Record{Path: "/v1/completions"}}
	a := &answer{}
	to := &replica.Replica{ID: "d0", URL: "http://d0:8000"}
	ctx, events := t.Context(), []byte(`data: {"id":"x"}`+"\n\n")
	if n := testing.AllocsPerRun(100, func() {
		_, s := o.spans.Step(ctx, "plan")
		s.End()
		_, leg := j.leg(ctx, observe.LegDecode, to)
		leg.Failed("")
		a.endSpan()
		a.said.Event(events)
	}); n > 0 {
		t.Errorf("%v allocations for spans without tracing, want 0", n)
	}
}
