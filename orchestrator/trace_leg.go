package orchestrator

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
)

// What a leg is for, as spans and metrics say it: prefill and decode of a split, local where one replica does
// both.
const (
	legPrefill = "prefill"
	legDecode  = "decode"
	legLocal   = "local"
	legPiece   = "piece" // of a prompt that is sent to one replica in pieces
)

// legSpan is the span of one request to an engine, which is the parent of that engine's own. Its zero value
// is that of a router that does not trace, and costs nothing.
type legSpan struct {
	step
	over bool
}

// leg opens the span of a leg of the job.
func (j *job) leg(ctx context.Context, leg string, to *replica.Replica) (context.Context, legSpan) {
	if !j.q.o.traced {
		return ctx, legSpan{}
	}
	does := operationPrefill
	generates := leg == legDecode || leg == legLocal
	if generates {
		does = operation(j.rec.Path)
	}
	attrs := append(toEngine(does, j.rec.Model, to), attrLeg.String(leg))
	if generates {
		attrs = append(attrs, asked(j.req)...)
	}
	return j.q.o.legSpan(ctx, does+" "+j.rec.Model, attrs)
}

// passedLeg opens the span of a request that is passed on as it came.
func (q *request) passedLeg(
	ctx context.Context, model string, to *replica.Replica,
) (context.Context, legSpan) {
	if !q.o.traced {
		return ctx, legSpan{}
	}
	if does := operation(q.path); does != "" && q.r.Method == http.MethodPost {
		attrs := append(toEngine(does, model, to), attrLeg.String(legLocal))
		return q.o.legSpan(ctx, does+" "+model, attrs)
	}
	return q.o.legSpan(ctx, q.r.Method, append(whereabouts(to), attrMethod.String(q.r.Method)))
}

func (o *Orchestrator) legSpan(
	ctx context.Context, name string, attrs []attribute.KeyValue,
) (context.Context, legSpan) {
	ctx, s := o.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
	return ctx, legSpan{step: step{s}}
}

// toEngine is what is known of every request to an engine that a model works for.
func toEngine(does, model string, to *replica.Replica) []attribute.KeyValue {
	return append(whereabouts(to),
		attrOperation.String(does), attrProvider.String(provider), attrModel.String(model))
}

// whereabouts says where a request goes.
func whereabouts(to *replica.Replica) []attribute.KeyValue {
	attrs := make([]attribute.KeyValue, 0, 16)
	attrs = append(attrs, attrReplica.String(string(to.ID)))
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
	return append(attrs, attrAddress.String(base.Hostname()), attrPort.Int(port))
}

// asked is what the client asked the model for, of which nothing is a part of a prompt.
func asked(r *openai.Request) []attribute.KeyValue {
	if r == nil {
		return nil
	}
	attrs := []attribute.KeyValue{attrStream.Bool(r.Stream)}
	if r.MaxTokens > 0 {
		attrs = append(attrs, attrMaxTokens.Int(r.MaxTokens))
	}
	if r.N > 1 {
		attrs = append(attrs, attrChoices.Int(r.N))
	}
	for _, x := range [...]struct {
		name string
		key  attribute.Key
	}{
		{"temperature", attrTemperature},
		{"top_p", attrTopP},
		{"frequency_penalty", attrFrequency},
		{"presence_penalty", attrPresence},
	} {
		if v, ok := r.Number(x.name); ok {
			attrs = append(attrs, x.key.Float64(v))
		}
	}
	for _, x := range [...]struct {
		name string
		key  attribute.Key
	}{{"seed", attrSeed}, {"top_k", attrTopK}} {
		if v, ok := r.Number(x.name); ok {
			attrs = append(attrs, x.key.Int64(int64(v)))
		}
	}
	if stop := r.StopSequences(); len(stop) > 0 {
		attrs = append(attrs, attrStop.StringSlice(stop))
	}
	return attrs
}

// failed says that the leg failed. A client that left is no failure of an engine.
func (s legSpan) failed(f *failure) {
	if !s.on() || f == nil || f.gone() {
		return
	}
	s.span.SetStatus(codes.Error, f.name())
	s.span.SetAttributes(attrErrorType.String(f.name()))
}

// prefilled ends the span of a prefill leg.
func (s legSpan) prefilled(answer *openai.PrefillAnswer, f *failure) {
	if !s.on() {
		return
	}
	switch s.failed(f); {
	case f == nil:
		s.span.SetAttributes(attrStatus.Int(http.StatusOK))
	case f.own():
		s.span.SetAttributes(attrStatus.Int(f.answer.status))
	}
	if answer.CachedTokens >= 0 {
		s.span.SetAttributes(attrCachedTokens.Int(answer.CachedTokens))
	}
	s.end()
}

// passed ends the span of a request that was passed on; status is 0 where no answer came.
func (s legSpan) passed(f *failure, status int) {
	if !s.on() {
		return
	}
	if s.failed(f); status != 0 {
		s.span.SetAttributes(attrStatus.Int(status))
	}
	s.end()
}

// traceBegun says on the request's span when the first token came, and adds a span for the transfer of KV
// blocks, which took as long as the planner made out, 0 for unknown. Of an answer that is not streamed nobody
// sees the first token, and a request of several prompts has several.
func (a *answer) traceBegun(transfer time.Duration) {
	j := a.h.j
	if !j.q.o.traced || !j.req.Stream {
		return
	}
	if j.rest.delivered == nil && !j.req.Batched {
		j.q.span.AddEvent("first_token", trace.WithTimestamp(a.first))
		j.q.span.SetAttributes(attrTTFT.Float64(ms(a.first.Sub(j.q.start))))
	}
	if transfer <= 0 || a.h.beside != nil { // both legs at once: it has the prefill in it
		return
	}
	step := a.h.b.DecodeLease.Step()
	ends := a.first.Add(-time.Duration(step * float64(time.Second)))
	_, s := j.q.o.tracer.Start(a.spanCtx, "kv transfer", trace.WithTimestamp(ends.Add(-transfer)),
		trace.WithAttributes(attrPrefill.String(string(a.h.b.Prefill.ID)),
			attrDecode.String(string(a.h.b.Decode.ID)), attrTokens.Int(max(0, j.rec.Prompt-a.h.b.MatchedDecode))))
	s.End(trace.WithTimestamp(ends))
}

// answered ends the span of the leg that a makes, once.
func (s *legSpan) answered(a *answer) {
	if !s.on() || s.over {
		return
	}
	s.over = true
	if a.resp != nil {
		s.span.SetAttributes(attrStatus.Int(a.resp.Status))
	}
	if !a.first.IsZero() {
		s.span.SetAttributes(a.attributes()...)
	}
	s.end()
}

// attributes are what the engine that makes a said of its answer. Tokens that were not counted have none.
func (a *answer) attributes() []attribute.KeyValue {
	attrs := []attribute.KeyValue{attrOutputTokens.Int(a.usage.output)}
	switch {
	case a.usage.promptTokens > 0:
		attrs = append(attrs, attrInputTokens.Int(a.usage.promptTokens))
	case a.h.j.ids != nil:
		attrs = append(attrs, attrInputTokens.Int(a.h.j.count))
	}
	if a.h.beside == nil || a.h.beside.ended() { // until then that leg writes the record
		if cached := a.h.j.rec.Delivered; cached >= 0 {
			attrs = append(attrs, attrCacheRead.Int(cached))
		}
	}
	if a.said.id != "" {
		attrs = append(attrs, attrAnswerID.String(a.said.id))
	}
	if a.said.model != "" {
		attrs = append(attrs, attrAnswerModel.String(a.said.model))
	}
	if len(a.said.finish) > 0 {
		attrs = append(attrs, attrFinish.StringSlice(a.said.finish))
	}
	return attrs
}

// saidByAnswer is what an answer says of itself that only a trace tells. A nil one takes no notice.
type saidByAnswer struct {
	id, model string
	finish    []string // why each of its choices ended, in the order in which they did
}

// whole notes an answer that is not streamed.
func (s *saidByAnswer) whole(body []byte) {
	if s == nil {
		return
	}
	s.id, s.model = openai.Names(body)
	s.ends(body)
}

// event notes whole events of a stream: one's data, or several as they came.
func (s *saidByAnswer) event(events []byte) {
	if s == nil {
		return
	}
	if s.id == "" {
		data, _, _ := bytes.Cut(bytes.TrimPrefix(events, []byte("data: ")), []byte("\n"))
		s.id, s.model = openai.Names(data)
	}
	s.ends(events)
}

// finishMarks stand before why a choice ended, in each API's words. Inside a text their quotes are escaped.
var finishMarks = [...][]byte{[]byte(`"finish_reason":"`), []byte(`"stop_reason":"`)}

// maxFinish bounds how many reasons are told.
const maxFinish = 16

func (s *saidByAnswer) ends(b []byte) {
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
