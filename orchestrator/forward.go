package orchestrator

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/observe"
)

// forward sends a passed request to one engine and passes the answer on as it arrives, without transfer
// parameters. rec is the record of its decision; nil without a decision.
//
// Long: one exchange, in its order.
func forward(
	ctx context.Context, q *request, to *fleet.Endpoint, p *passthrough, rec *observe.Record,
) (f *failure) {
	to.Begin()
	defer to.End()
	if rec == nil || p.uncounted(q.path, to) {
		end := to.Uncounted()
		if !p.acts { // an engine may continue with its work after its answer
			defer end()
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timeout, late := p.answerBy(&q.cfg.Timeouts)
	timer := time.AfterFunc(timeout, func() { cancel(late) })
	defer timer.Stop()
	ctx, span := q.spans.PassedLeg(ctx, q.r.Method, q.path, p.model, &to.Member)
	status := 0
	defer func() { span.Passed(f.onSpan(), status) }()
	r := &engine.Request{
		Method: q.r.Method, Path: enginePath(q.r), Body: p.body, ContentType: p.contentType, Idempotent: p.again,
		ID: p.id(q.id),
	}
	r.Header = q.ofClient(nil)
	era := to.CacheEpoch()
	send := to.Do
	if p.again { // a question, which concerns no blocks
		send = to.Ask
	}
	resp, err := send(ctx, q.spans.Propagate(ctx, r, q.r.Header))
	if err != nil {
		q.fleet.Failed(to.Member.ID, err)
		return legFailed(ctx, phaseDecode, to.Member.ID, err)
	}
	defer resp.Close()
	status = resp.Status
	contentType := resp.Header.Get("Content-Type")
	if strings.HasPrefix(contentType, "text/event-stream") && resp.Status == http.StatusOK {
		s := &eventReader{resp: resp, kind: q.kind, at: to.Member.ID, idle: q.cfg.Timeouts.DecodeIdle}
		f := forwardStream(ctx, q.w, s, timer, rec, func() *failure { return formerEra(phaseDecode, to, era) })
		u := &s.usage
		notePassed(q, rec, openai.Usage{Prompt: u.promptTokens, Completion: u.output, Cached: u.reportedCached})
		return f
	}
	if resp.Status >= 300 {
		return refusal(ctx, phaseDecode, to, resp, int64(q.cfg.Limits.AnswerBytes))
	}
	body, err := entire(resp, nil, int64(q.cfg.Limits.AnswerBytes))
	if err != nil {
		return legFailed(ctx, phaseDecode, to.Member.ID, err)
	}
	if f := formerEra(phaseDecode, to, era); f != nil {
		return f
	}
	if q.key != nil {
		said := q.kind.Find(body)
		u, _ := said.Usage()
		notePassed(q, rec, u)
	}
	if openai.NeedsScrub(body) {
		body = openai.Scrub(nil, body)
	}
	return q.w.whole(resp.Status, contentType, body, rec)
}

// notePassed writes the usage of a passed request into its record, for its client key.
func notePassed(q *request, rec *observe.Record, u openai.Usage) {
	if rec == nil || q.key == nil {
		return
	}
	if rec.Output = u.Completion; u.Prompt > 0 { // otherwise the engine reported nothing, and the estimate stays
		rec.Prompt, rec.Delivered = u.Prompt, u.Cached
	}
}

// uncounted reports whether the lease of a passed request does not show its load on the engine. The engine
// may make one request from each text to encode, from each part of a recording and from each prompt of a
// list. It may also choose the rank itself, or continue after its answer.
func (p *passthrough) uncounted(path string, to *fleet.Endpoint) bool {
	return p.unbooked || p.encodes || p.acts || p.contentType != "application/json" ||
		path == "/v1/completions" || path == "/v1/responses" && to.Member.Pinned()
}

// id returns the request id for engines. A request that is sent again gets another id, because the first id
// may be in use.
func (p *passthrough) id(of string) string {
	if p.resent {
		return of + "-r1"
	}
	return of
}

// answerBy returns the time limit of an engine, and the cause after this time. The limit is for the head of a
// stream, for the answer to a question, or for the whole of another answer.
func (p *passthrough) answerBy(limits *config.Timeouts) (timeout time.Duration, late error) {
	if p.stream || p.again {
		return limits.DecodeFirst, errPhaseTimeout
	}
	return limits.Answer, errAnswerLate
}

// enginePath returns the path that the router matched, which is on the list in serve.go, with the client's
// query.
func enginePath(r *http.Request) string {
	if r.URL.RawQuery == "" {
		return r.URL.Path
	}
	return r.URL.Path + "?" + visible(r.URL.RawQuery)
}

// visible escapes the bytes of a query that may not be in a request line. net/http accepts them from clients.
func visible(query string) string {
	var b strings.Builder
	for _, c := range []byte(query) {
		if c > ' ' && c < 0x7f {
			b.WriteByte(c)
			continue
		}
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.String()
}

// forwardStream passes a stream on from its first content. It refuses the stream if former says then that the
// stream may be wrong. The first content must come within the time for a first token.
func forwardStream(
	ctx context.Context, w *client, s *eventReader, t *time.Timer, rec *observe.Record, former func() *failure,
) *failure {
	defer s.buffers.drop()
	said, err := s.readFirst()
	t.Stop()
	switch {
	case said != nil:
		return said
	case err != nil:
		return legFailed(ctx, phaseDecode, s.at, err)
	}
	if f := former(); f != nil {
		return f
	}
	f := s.stream(ctx, func(events []byte, n int) *failure { return w.events(events, n, rec) })
	switch {
	case f == nil:
		w.begin(rec) // a stream without events is still a stream
	case f.owner() == ownerClient, ctx.Err() != nil:
	default:
		if rec != nil {
			rec.NotContinued = continueWhole
		}
		return f.withNotContinued(continueWhole)
	}
	return f
}
