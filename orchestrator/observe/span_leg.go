package observe

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
)

// These are the purposes of a leg in spans and metrics: prefill and decode of a split, and local if one
// replica does both.
const (
	LegPrefill = "prefill"
	LegDecode  = "decode"
	LegLocal   = "local"
	LegPiece   = "piece" // of a prompt that is sent to one replica in pieces
)

// LegSpan is the span of one request to an engine, and the parent of the engine's own span. The zero LegSpan
// is for a router without tracing, and costs nothing.
type LegSpan struct {
	Step
	over bool
}

// Leg opens the span of a leg of a request that came through path; asked may be nil.
func (t *Tracer) Leg(
	ctx context.Context, leg, path, model string, to *replica.Replica, asked *openai.Request,
) (context.Context, LegSpan) {
	if !t.On() {
		return ctx, LegSpan{}
	}
	does := operationPrefill
	generates := leg == LegDecode || leg == LegLocal
	if generates {
		does = operation(path)
	}
	attrs := append(toEngine(does, model, to), AttrLeg.String(leg))
	if generates {
		attrs = append(attrs, askedFor(asked)...)
	}
	return t.legSpan(ctx, does+" "+model, attrs)
}

// PassedLeg opens the span of a request that is passed on unchanged.
func (t *Tracer) PassedLeg(
	ctx context.Context, method, path, model string, to *replica.Replica,
) (context.Context, LegSpan) {
	if !t.On() {
		return ctx, LegSpan{}
	}
	if does := operation(path); does != "" && method == http.MethodPost {
		attrs := append(toEngine(does, model, to), AttrLeg.String(LegLocal))
		return t.legSpan(ctx, does+" "+model, attrs)
	}
	return t.legSpan(ctx, method, append(whereabouts(to), AttrMethod.String(method)))
}

func (t *Tracer) legSpan(
	ctx context.Context, name string, attrs []attribute.KeyValue,
) (context.Context, LegSpan) {
	ctx, s := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
	return ctx, LegSpan{Step: Step{s}}
}

// Failed records the kind of a leg's failure; "" for none.
func (s LegSpan) Failed(kind string) {
	if !s.On() || kind == "" {
		return
	}
	s.span.SetStatus(codes.Error, kind)
	s.Set(AttrErrorType.String(kind))
}

// Prefilled ends the span of a prefill leg. status is 0 if there was no answer. cached is below 0 if the
// engine did not report it.
func (s LegSpan) Prefilled(kind string, status, cached int) {
	if !s.On() {
		return
	}
	s.Failed(kind)
	if status != 0 {
		s.Set(AttrStatus.Int(status))
	}
	if cached >= 0 {
		s.Set(AttrCachedTokens.Int(cached))
	}
	s.End()
}

// Passed ends the span of a request that was passed on. status is 0 if there was no answer.
func (s LegSpan) Passed(kind string, status int) { s.Prefilled(kind, status, -1) }

// Answered ends the span of a leg that generates, once. status is 0 if there was no answer. of is what the
// engine reported about its answer; nil if the answer did not begin.
func (s *LegSpan) Answered(status int, of *Answered) {
	if !s.On() || s.over {
		return
	}
	s.over = true
	if status != 0 {
		s.Set(AttrStatus.Int(status))
	}
	if of != nil {
		s.Set(of.attributes()...)
	}
	s.End()
}

// Answered is what an engine reported about its answer.
type Answered struct {
	Output int
	Prompt int // 0 where unknown
	Cached int // -1 where unknown
	Said   *Said
}

func (a *Answered) attributes() []attribute.KeyValue {
	attrs := []attribute.KeyValue{AttrOutputTokens.Int(a.Output)}
	if a.Prompt > 0 {
		attrs = append(attrs, AttrInputTokens.Int(a.Prompt))
	}
	if a.Cached >= 0 {
		attrs = append(attrs, AttrCacheRead.Int(a.Cached))
	}
	if a.Said == nil {
		return attrs
	}
	if a.Said.id != "" {
		attrs = append(attrs, AttrAnswerID.String(a.Said.id))
	}
	if a.Said.model != "" {
		attrs = append(attrs, AttrAnswerModel.String(a.Said.model))
	}
	if len(a.Said.finish) > 0 {
		attrs = append(attrs, AttrFinish.StringSlice(a.Said.finish))
	}
	return attrs
}

// toEngine returns the attributes of every request to an engine for which a model works.
func toEngine(does, model string, to *replica.Replica) []attribute.KeyValue {
	return append(whereabouts(to),
		AttrOperation.String(does), AttrProvider.String(provider), AttrModel.String(model))
}

// whereabouts describes the destination of a request.
func whereabouts(to *replica.Replica) []attribute.KeyValue {
	attrs := make([]attribute.KeyValue, 0, 16)
	attrs = append(attrs, AttrReplica.String(string(to.ID)))
	base, err := url.Parse(to.URL)
	if err != nil {
		return attrs
	}
	port, err := strconv.Atoi(base.Port())
	switch {
	case err == nil:
	case base.Scheme == "https":
		port = 443
	default:
		port = 80
	}
	return append(attrs, AttrAddress.String(base.Hostname()), AttrPort.Int(port))
}

// askedFor returns the client's settings for the answer. None is a part of a prompt.
func askedFor(r *openai.Request) []attribute.KeyValue {
	if r == nil {
		return nil
	}
	attrs := []attribute.KeyValue{AttrStream.Bool(r.Stream)}
	if r.MaxTokens > 0 {
		attrs = append(attrs, AttrMaxTokens.Int(r.MaxTokens))
	}
	if r.N > 1 {
		attrs = append(attrs, AttrChoices.Int(r.N))
	}
	for _, x := range [...]struct {
		name string
		key  attribute.Key
	}{
		{"temperature", AttrTemperature},
		{"top_p", AttrTopP},
		{"frequency_penalty", AttrFrequency},
		{"presence_penalty", AttrPresence},
	} {
		if v, ok := r.Number(x.name); ok {
			attrs = append(attrs, x.key.Float64(v))
		}
	}
	for _, x := range [...]struct {
		name string
		key  attribute.Key
	}{{"seed", AttrSeed}, {"top_k", AttrTopK}} {
		if v, ok := r.Number(x.name); ok {
			attrs = append(attrs, x.key.Int64(int64(v)))
		}
	}
	if stop := r.StopSequences(); len(stop) > 0 {
		attrs = append(attrs, AttrStop.StringSlice(stop))
	}
	return attrs
}

// Said holds the facts of an answer that only a trace shows. A nil Said ignores all facts.
type Said struct {
	id, model string
	finish    []string // finish reason of each choice, in the order of their ends
}

// Whole records an answer that is not streamed.
func (s *Said) Whole(body []byte) {
	if s == nil {
		return
	}
	s.id, s.model = openai.Names(body)
	s.ends(body)
}

// Event records whole events of a stream: the data of one event, or several events as received.
func (s *Said) Event(events []byte) {
	if s == nil {
		return
	}
	if s.id == "" {
		data, _, _ := bytes.Cut(bytes.TrimPrefix(events, []byte("data: ")), []byte("\n"))
		s.id, s.model = openai.Names(data)
	}
	s.ends(events)
}

// finishMarks precede the finish reason of a choice, in each API's words. Within a text their quotes are
// escaped.
var finishMarks = [...][]byte{[]byte(`"finish_reason":"`), []byte(`"stop_reason":"`)}

// maxFinish limits the reasons on a span.
const maxFinish = 16

func (s *Said) ends(b []byte) {
	mark := finishMarks[0]
	if !bytes.Contains(b, mark) && bytes.Contains(b, []byte(`"type":"message`)) {
		mark = finishMarks[1]
	}
	for len(s.finish) < maxFinish {
		i := bytes.Index(b, mark)
		if i < 0 {
			return
		}
		b = b[i+len(mark):]
		if reason, _, whole := bytes.Cut(b, []byte{'"'}); whole {
			s.finish = append(s.finish, string(reason))
		}
	}
}
