package orchestrator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"tandem/internal/engine"
	"tandem/internal/openai"
	"tandem/internal/replica"
	"tandem/internal/tokenizer"
	"tandem/orchestrator/planner"
)

// passed is a request that goes whole to one replica, as it came but for transfer parameters, which never reach an engine.
type passed struct {
	body        []byte
	contentType string
	model       string
	stream      bool
	samples     int  // answers that it asks for
	again       bool // an engine may be asked twice: nothing is made or changed by it
}

// tokens estimates how long the prompt is. A form is a recording.
func (p *passed) tokens(perToken float64) int {
	if strings.HasPrefix(p.contentType, "multipart/") {
		return tokenizer.MediaTokens
	}
	return tokenizer.EstimateTokens(p.body, perToken)
}

// readPassed reads and cleans a body that is not split.
func (q *request) readPassed() (*passed, *failure) {
	if q.r.Method == http.MethodGet {
		return &passed{again: true}, nil
	}
	raw, f := q.body()
	if f != nil {
		return nil, f
	}
	p := &passed{body: raw, contentType: q.r.Header.Get("Content-Type")}
	if media, params, err := mime.ParseMediaType(p.contentType); err == nil && strings.HasPrefix(media, "multipart/") {
		if hidesTransfer(raw) {
			return nil, badRequest(&openai.BadRequest{Message: "Transfer parameters are not taken from clients."})
		}
		// A charset could hide the names from us: vLLM's server reads a form's values in the one that is named, UTF-7 as well.
		p.contentType = mime.FormatMediaType(media, map[string]string{"boundary": params["boundary"]})
		return p, nil
	}
	p.contentType = "application/json" // an engine reads every other body as JSON, whatever it is called
	if len(raw) == 0 {
		return p, nil
	}
	clean, err := openai.Sanitize(raw, q.limits())
	if err != nil {
		return nil, badRequest(err)
	}
	p.body = clean
	seen := openai.Peek(clean)
	p.model, p.stream, p.samples = seen.Model, seen.Stream, seen.Samples
	if most := q.snap.cfg.Limits.Samples; seen.Samples > most {
		return nil, badRequest(&openai.BadRequest{Message: openai.TooManySamples("n", most), Param: "n"})
	}
	if p.model, f = q.modelOr(p.model); f != nil {
		return nil, f
	}
	return p, nil
}

// hidesTransfer looks for the names of transfer parameters in a form, whose fields an engine may read as JSON.
func hidesTransfer(form []byte) bool {
	return bytes.Contains(form, []byte("_transfer_params")) || bytes.Contains(form, []byte(`\u00`))
}

// whole passes a generating request to one decode replica, with room booked there.
func (o *Orchestrator) whole(ctx context.Context, q *request) *failure {
	p, f := q.readPassed()
	if f != nil {
		return f
	}
	return o.pass(ctx, q, p, "")
}

// pass does so with a body that has been read and cleaned; why is what keeps it from being split, "" where the path is never split.
func (o *Orchestrator) pass(ctx context.Context, q *request, p *passed, why string) *failure {
	if id := previousResponse(p.body); id != "" {
		if to := q.holder(ctx, id); to != nil {
			q.mode = "unsplit"
			return q.forward(ctx, to, p)
		}
	}
	j := q.newJob(nil, 0)
	j.rec.Model = p.model
	j.count = p.tokens(q.snap.cfg.Tokenizer.CharsPerToken)
	j.plan = planner.Request{ID: j.id, Model: j.anyModel(o), Tokens: j.count, Sequences: max(p.samples, 1), LocalOK: true}
	var first *failure
	for {
		f := j.passOnce(ctx, p, why)
		if f != nil && f.phase == "plan" && first != nil && first.own {
			f = first // nobody else is left: the client gets what an engine said
		}
		if f == nil || f == first || !f.passable(p) || !j.again(ctx, f) {
			j.finish(f, nil)
			return f
		}
		first = f
		j.retried(f)
	}
}

// passOnce books room for the request and passes it.
func (j *job) passOnce(ctx context.Context, p *passed, why string) *failure {
	j.tries++
	j.rec.Attempts = j.tries
	b, f := j.book(ctx)
	if f != nil {
		return f
	}
	o := j.q.o
	defer func() {
		b.Release(time.Now())
		o.queue.wake()
	}()
	j.noteWhole(b, why)
	b.DecodeLease.Harden(time.Now())
	to := o.fleet.to(b.Decode.ID)
	if to == nil {
		return left(b.Decode.ID)
	}
	began := time.Now()
	f = j.q.forward(ctx, to, p)
	o.passedOn(b, f, began)
	return f
}

// passable reports whether a passed request that failed so may be passed to another replica: nothing of it was taken, or it may be asked twice. What is
// passed may do anything, and only harmless attempts are repeated.
func (f *failure) passable(p *passed) bool {
	switch {
	case f.written || !f.retry:
		return false
	case f.kind == "unreachable" || f.kind == "left":
		return true
	case f.forgotten():
		return strings.HasPrefix(openai.Message(f.body), "The model") // not the path, nor a response that was to be gone on with
	}
	return p.again
}

// left is a decode replica that went while it was being chosen.
func left(id replica.ID) *failure {
	f := refuse("decode", "left", http.StatusServiceUnavailable, "The decode replica has left the pool.")
	f.at, f.retry, f.unused = id, true, true
	return f
}

// anyModel is the model of a passed request, or that of any engine for a form, whose fields are not read.
func (j *job) anyModel(o *Orchestrator) string {
	if j.rec.Model != "" {
		return j.rec.Model
	}
	if to := o.fleet.any("", nil); to != nil {
		return to.member.Facts.Model
	}
	return ""
}

func (j *job) noteWhole(b *planner.Booking, why string) {
	j.rec.Mode, j.rec.Decode, j.rec.Prompt, j.rec.Attempts = "unsplit", string(b.Decode.ID), j.count, j.tries
	j.q.mode = "unsplit"
	if b.Decision != nil {
		j.rec.Reason, j.rec.Decision = b.Decision.Reason, b.Decision
	}
	j.noteWhy(why)
}

// ask passes a question that needs no blocks to any engine.
func (o *Orchestrator) ask(ctx context.Context, q *request) *failure {
	p, f := q.readPassed()
	if f != nil {
		return f
	}
	q.mode, p.again = "ask", true
	tried := map[replica.ID]bool{}
	for {
		to := o.anyFor(p.model, func(r *reach) bool { return tried[r.member.ID] })
		if to == nil && f != nil {
			return f
		}
		if to == nil {
			return refuse("plan", "no_replica", http.StatusServiceUnavailable, "No engine is usable at the moment.")
		}
		tried[to.member.ID] = true
		f = q.forward(ctx, to, p)
		if f == nil || !f.passable(p) || f.forgotten() || ctx.Err() != nil || len(tried) >= q.snap.cfg.Retry.Attempts {
			return f
		}
		o.m.retries.WithLabelValues(f.phase).Inc()
	}
}

// anyFor finds an engine that serves model, or else any: it will say itself that it does not know the model.
func (o *Orchestrator) anyFor(model string, skip func(*reach) bool) *reach {
	if to := o.fleet.any(model, skip); to != nil {
		return to
	}
	return o.fleet.any("", skip)
}

// model answers for one model from the list, since engines do not serve that path.
func (o *Orchestrator) model(ctx context.Context, q *request) *failure {
	name, err := url.PathUnescape(chi.URLParam(q.r, "model"))
	if err != nil || !o.served(name) || o.fleet.any(name, nil) == nil {
		f := refuse("plan", "unknown_model", http.StatusNotFound, "The model does not exist.")
		f.owner = "client"
		return f
	}
	q.mode = "ask"
	body := []byte(`{"id":` + strconv.Quote(name) + `,"object":"model","owned_by":"vllm"}`)
	q.w.Header().Set("Content-Type", "application/json")
	return q.give(http.StatusOK, body)
}

// stored serves what hangs on a response that one engine keeps: the engines are asked in turn until one knows it.
func (o *Orchestrator) stored(ctx context.Context, q *request) *failure {
	id := chi.URLParam(q.r, "id")
	if !plainID(id) {
		f := refuse("admit", "bad_id", http.StatusBadRequest, "A response id has letters, digits, '_' and '-'.")
		f.owner = "client"
		return f
	}
	q.mode = "ask"
	to := q.holder(ctx, id)
	if to == nil {
		f := refuse("plan", "unknown_response", http.StatusNotFound, "No engine keeps this response.")
		f.owner = "client"
		return f
	}
	return q.forward(ctx, to, &passed{again: true})
}

// plainID keeps what is put into an engine's path to what such ids are made of.
func plainID(id string) bool {
	for _, c := range []byte(id) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return id != "" && len(id) <= 128
}

// holder finds the engine that keeps a stored response, nil when none does.
func (q *request) holder(ctx context.Context, id string) *reach {
	if !plainID(id) {
		return nil
	}
	tried := map[replica.ID]bool{}
	for {
		to := q.o.fleet.anyOf(replica.Decode, "", 0, func(r *reach) bool { return tried[r.member.ID] })
		if to == nil || ctx.Err() != nil {
			return nil
		}
		tried[to.member.ID] = true
		asked, cancel := context.WithTimeout(ctx, q.snap.cfg.Timeouts.Probe)
		resp, err := to.client.Do(asked, &engine.Request{Method: http.MethodGet, Path: "/v1/responses/" + id, Idempotent: true})
		if err == nil {
			_, _ = resp.ReadAll(int64(q.snap.cfg.Limits.AnswerBytes))
			resp.Close()
		}
		cancel()
		if err == nil && resp.Status == http.StatusOK {
			return to
		}
	}
}

// forward sends a passed request to one engine and copies the answer as it comes, without transfer parameters.
func (q *request) forward(ctx context.Context, to *reach, p *passed) *failure {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timeout, late := q.answerBy(p)
	timer := time.AfterFunc(timeout, func() { cancel(late) })
	defer timer.Stop()
	r := &engine.Request{Method: q.r.Method, Path: enginePath(q.r), Body: p.body, ContentType: p.contentType, Idempotent: p.again}
	r.Header = append(r.Header, engine.Field{Key: "X-Request-Id", Value: q.id})
	resp, err := to.do(ctx, q.o.propagate(ctx, r, q.r.Header))
	if err != nil {
		q.o.fleet.failed(to.member.ID, err)
		return legFailed(ctx, "decode", to.member.ID, err)
	}
	defer resp.Close()
	contentType := resp.Header.Get("Content-Type")
	if strings.HasPrefix(contentType, "text/event-stream") && resp.Status == http.StatusOK {
		timer.Stop()
		return q.forwardStream(ctx, to, resp)
	}
	if resp.Status >= 400 {
		return refusal(ctx, "decode", to, resp, int64(q.snap.cfg.Limits.AnswerBytes))
	}
	body, err := entire(resp, nil, int64(q.snap.cfg.Limits.AnswerBytes))
	if err != nil {
		return legFailed(ctx, "decode", to.member.ID, err)
	}
	if openai.NeedsScrub(body) {
		body = openai.Scrub(nil, body)
	}
	if contentType != "" {
		q.w.Header().Set("Content-Type", contentType)
	}
	return q.give(resp.Status, body)
}

// answerBy is how long an engine may take, and what ends it then: up to the head of a stream or the answer to a question, or else to the end of a whole answer.
func (q *request) answerBy(p *passed) (timeout time.Duration, late error) {
	if p.stream || p.again {
		return q.snap.cfg.Timeouts.DecodeFirst, errPhaseTimeout
	}
	return q.snap.cfg.Timeouts.Answer, errAnswerLate
}

// enginePath is the path that the router matched, which is on the list of serve.go, with the client's query.
func enginePath(r *http.Request) string {
	if r.URL.RawQuery == "" {
		return r.URL.Path
	}
	return r.URL.Path + "?" + visible(r.URL.RawQuery)
}

// visible escapes the bytes of a query that have no place in a request line. net/http lets clients send them as they are.
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

// forwardStream copies a stream event by event.
func (q *request) forwardStream(ctx context.Context, to *reach, resp *engine.Response) *failure {
	h := q.w.Header()
	h.Set("Content-Type", resp.Header.Get("Content-Type"))
	h.Set("Cache-Control", "no-cache")
	q.w.WriteHeader(http.StatusOK)
	resp.SetIdle(q.snap.cfg.Timeouts.DecodeIdle)
	var events openai.Events
	var buf []byte
	sent, ended := 0, resp.Delimited()
	for {
		chunk, err := resp.Next()
		if errors.Is(err, io.EOF) && ended {
			if rest := events.Pending(); len(rest) > 0 {
				_ = q.w.send(rest)
			}
			return nil
		}
		if err == nil {
			buf = buf[:0]
			for e := range events.Feed(chunk) {
				q.o.m.events.Inc()
				sent++
				ended = ended || e.IsDone() || q.kind.Ends(e.Data())
				if openai.NeedsScrub(e) {
					buf = openai.Scrub(buf, e)
				} else {
					buf = append(buf, e...)
				}
			}
			err = events.Err()
		}
		if err != nil {
			return q.broken(ctx, to, sent, unexpected(err))
		}
		if len(buf) == 0 {
			continue
		}
		if err := q.w.send(buf); err != nil {
			return q.lost(err)
		}
	}
}

// previousResponse reads previous_response_id of a responses request: only the engine that keeps that response can go on with it.
func previousResponse(body []byte) string {
	if !bytes.Contains(body, []byte(`"previous_response_id"`)) {
		return ""
	}
	var named struct {
		ID string `json:"previous_response_id"`
	}
	if json.Unmarshal(body, &named) != nil {
		return ""
	}
	return named.ID
}
