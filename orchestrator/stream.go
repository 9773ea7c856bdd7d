package orchestrator

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"tandem/connector"
	"tandem/internal/engine"
	"tandem/internal/openai"
	"tandem/internal/replica"
)

// answer is the generating engine's answer, begun well and not yet given to the client. One goroutine owns it; it must be closed.
type answer struct {
	h       *handoff
	to      *reach
	ctx     context.Context
	spanCtx context.Context
	endSpan func(...attribute.KeyValue)
	resp    *engine.Response
	guard   *guard // until the first content of a split request

	split  bool
	told   int // prompt tokens that the generating engine says it had cached, -1 unknown
	cached int // prefill's cached tokens, to be shown to the client; -1 leaves the engine's own word

	head   []byte // stream: events read before the answer was known to be good; borrowed
	buf    []byte // stream: what next has returned, where that was borrowed
	whole  []byte // no stream: the body
	events openai.Events
	done   bool // stream: its last event has been read
	sent   int  // stream: events that were read

	first        time.Time     // when the first content was there
	blocked      time.Duration // that the client let writes wait
	promptTokens int
	output       int
	bad          *failure // how the answer ended, nil when well

	given *openai.Delivered // stream: what the client has got of it, nil where nobody goes on with it
	kept  int               // tokens of the client's answer that are in the prompt of this one
	died  error             // stream: why it ends here, where no read said so
	last  []byte            // stream: the engine's own event about that
	over  bool              // stream: the client gets the head, and nothing more
	held  bool              // its end has been held against its engine
}

// open sends the generating leg and reads until the answer is known to be good: a whole body with status 200, or the first content of a stream.
// A stream is inspected because vLLM reports a failed KV load inside a 200.
func (a *answer) open(r *engine.Request) *failure {
	if timeouts := a.h.cfg.Timeouts; a.h.j.req.Stream {
		a.h.limit(timeouts.DecodeFirst, errPhaseTimeout)
	} else {
		a.h.limit(timeouts.Answer, errAnswerLate)
	}
	if a.h.beside == nil {
		a.guard = a.h.guardSilence(a.to)
	}
	resp, err := a.to.do(a.spanCtx, r)
	giveBuffer(r.Body)
	switch {
	case errors.Is(err, connector.ErrExpired):
		return a.h.notHandedOver(err)
	case err != nil:
		f := a.failed(err)
		f.unused = engine.NotSent(err)
		return f
	}
	a.resp = resp
	a.noteHandoff(resp)
	if resp.Status != http.StatusOK {
		return a.refused()
	}
	if !a.h.j.req.Stream {
		return a.readWhole()
	}
	return a.readFirst()
}

// noteHandoff observes the gap between the legs.
func (a *answer) noteHandoff(resp *engine.Response) {
	if !a.split || a.h.beside != nil {
		return
	}
	gap := resp.Sent.Sub(a.h.doneAt)
	a.h.j.rec.Phases.Handoff = ms(gap)
	a.h.j.q.o.m.handoffGap.Observe(gap.Seconds())
	a.h.j.q.o.m.observe(phaseHandoff, gap)
}

func (a *answer) failed(err error) *failure { return legFailed(a.ctx, "decode", a.to.member.ID, err) }

// refused passes on an engine's error answer.
func (a *answer) refused() *failure {
	f := refusal(a.ctx, "decode", a.to, a.resp, int64(a.h.cfg.Limits.AnswerBytes))
	f.source = a.source(f.status)
	return f
}

// source is the prefill replica, where an answer of this status can mean that its blocks could not be loaded.
func (a *answer) source(status int) replica.ID {
	if a.split && status == http.StatusInternalServerError {
		return a.h.b.Prefill.ID
	}
	return ""
}

// readWhole reads an answer that is not streamed.
func (a *answer) readWhole() *failure {
	a.h.j.q.o.report(a.to, a.resp)
	body, err := entire(a.resp, nil, int64(a.h.cfg.Limits.AnswerBytes))
	if err != nil {
		return a.failed(err)
	}
	if !a.kind().IsAnswer(body) {
		return a.failed(errNoAnswer)
	}
	if f := a.believe(); f != nil {
		return f
	}
	a.begun()
	a.joinPrefill()
	if u, ok := openai.ReadUsage(body); ok {
		a.promptTokens, a.output = u.Prompt, u.Completion
		a.delivered(u)
		a.told = u.Cached
	}
	a.whole = a.patch(body)
	return nil
}

// joinPrefill waits for a prefill leg that runs beside, whose answer has the cached tokens.
func (a *answer) joinPrefill() {
	if a.h.beside != nil {
		_ = a.h.beside.wait() // the answer is there: how the leg ended changes nothing
	}
	if a.split {
		a.cached = a.h.cached
	}
}

// delivered notes what the engine says it had cached, where it prefilled itself. Of several samples it tells one's, which may have found what another of the same request had
// just computed: that says nothing of what was there before (vLLM 0.32, measured).
func (a *answer) delivered(u openai.Usage) {
	if !a.split && u.Cached >= 0 && a.h.j.plan.Sequences <= 1 {
		a.h.j.rec.Delivered = u.Cached
		a.h.b.DecodeLease.Delivered(u.Cached)
	}
}

// patch puts the prefill's truth into the usage and takes transfer parameters out.
func (a *answer) patch(body []byte) []byte {
	if a.cached >= 0 {
		if out, ok := openai.PatchUsage(make([]byte, 0, len(body)+16), body, a.cached); ok {
			body = out
		}
	}
	if openai.NeedsScrub(body) {
		body = openai.Scrub(make([]byte, 0, len(body)), body)
	}
	return body
}

// readFirst reads a stream up to its first content, its end, or its error.
func (a *answer) readFirst() *failure {
	for {
		chunk, err := a.resp.Next()
		if err != nil {
			return a.endedEarly(err)
		}
		if a.head == nil {
			a.head = borrow(len(chunk) + slack)
		}
		rest, good, f := a.findFirst(chunk)
		if good {
			a.head = a.pass(a.head, rest)
		}
		switch {
		case f != nil:
			return f
		case a.events.Err() != nil:
			return a.failed(a.events.Err())
		case good && a.done && a.sent < 2: // an end, and nothing that ends
			return a.failed(errNoAnswer)
		case good:
			if f := a.believe(); f != nil {
				return f
			}
			a.begun()
			return nil
		}
	}
}

// findFirst puts the events of chunk into the head up to the first that is content or the end, and returns what follows it.
func (a *answer) findFirst(chunk []byte) (rest []byte, good bool, f *failure) {
	for {
		var e openai.Event
		if e, chunk = a.events.Cut(chunk); e == nil {
			return nil, false, nil
		}
		data := e.Data()
		if code, isError := openai.HasError(data); isError {
			f := a.errorEvent(code, data)
			f.source = a.source(f.status)
			return nil, false, f
		}
		content := openai.HasContent(data)
		if content {
			a.output++
		}
		if a.head = a.appendEvent(a.head, e); a.died != nil {
			return nil, false, a.failed(a.died)
		}
		if content || a.done {
			return chunk, true, nil
		}
	}
}

// endedEarly is a stream that ended before its first content. On /v1/responses vLLM has no event for a failed load and cuts the connection.
func (a *answer) endedEarly(err error) *failure {
	f := a.failed(unexpected(err))
	if a.kind() == openai.Responses && f.kind == "broken" && a.sent > 0 {
		f.source = a.source(http.StatusInternalServerError)
	}
	return f
}

func (a *answer) kind() openai.Kind { return a.h.j.req.Kind }

// unexpected makes an early end of a stream an error like any other.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// begun stops the clock for the first content.
func (a *answer) begun() {
	a.h.stopClock()
	a.guard.stop()
	a.first = time.Now()
	j := a.h.j
	took := a.first.Sub(a.resp.Sent)
	j.q.o.m.leg.WithLabelValues("decode", string(a.to.member.ID)).Observe(took.Seconds())
	if j.req.Stream { // of other answers nobody sees the first token
		j.q.o.m.compare(map[bool]string{true: "decode", false: "local"}[a.split], a.to.member.ID, took, a.h.b.FirstWithin())
	}
	j.rec.Phases.First = ms(a.first.Sub(j.q.start))
	if j.rest == nil {
		j.q.o.m.observe(phaseFirst, a.first.Sub(j.q.start))
	}
	j.q.o.planner.FirstToken(a.h.b, a.first)
	j.q.o.tell(j.q.o.planner.Decoding(a.h.b, a.first))
	a.expectBlocks()
	if a.h.b.Mode == 0 && a.h.beside == nil {
		a.cached = a.h.cached
	}
}

// errorEvent is a failure that vLLM reported inside a 200. A client that has seen nothing yet gets it with its real status. Behind content it has nothing to do
// with the replica that prefilled: its blocks were there.
func (a *answer) errorEvent(code int, data []byte) *failure {
	if code < 400 || code > 599 {
		code = http.StatusInternalServerError
	}
	f := answered("decode", a.to.member.ID, code, bytes.Clone(data), "", "")
	f.kind = "error_event"
	return f
}

// appendEvent appends an event as the client will see it, and counts what it carries.
func (a *answer) appendEvent(dst []byte, e openai.Event) []byte {
	a.h.j.q.o.m.events.Inc()
	a.sent++
	if a.kind().Ends(e.Data()) {
		a.done = true
	}
	if e.IsDone() {
		a.done = true
		return append(dst, e...)
	}
	if bytes.Contains(e, usageMark) {
		if u, ok := openai.ReadUsage(e.Data()); ok {
			a.joinPrefill()
			a.promptTokens, a.output = u.Prompt, u.Completion
			a.delivered(u)
			a.told = u.Cached
			return a.hand(dst, a.patch(e))
		}
	}
	if openai.NeedsScrub(e) {
		return a.hand(dst, openai.Scrub(nil, e))
	}
	return a.hand(dst, e)
}

// hand appends what the client gets of an event.
func (a *answer) hand(dst []byte, e openai.Event) []byte {
	if a.given == nil {
		return append(dst, e...)
	}
	dst, a.died = a.given.Event(dst, e)
	return dst
}

// handPlain appends what the client gets of events in which nothing has to be looked at but their token ids.
func (a *answer) handPlain(dst, events []byte) []byte {
	a.count(events)
	if a.given == nil {
		return append(dst, events...)
	}
	dst, a.died = a.given.Append(dst, events)
	return dst
}

// slack is by how much events may grow when their usage is rewritten.
const slack = 64

// next returns what may go to the client now; io.EOF after the end of a good stream. The bytes are valid until the next call. Where the engine breaks
// off and another goes on with the answer, a is that one's from then on.
func (a *answer) next() ([]byte, error) {
	for {
		out, err := a.nextOfLeg()
		if err == nil || errors.Is(err, io.EOF) {
			return out, err
		}
		last := a.last
		if a.goOn(err) {
			continue
		}
		if f, ok := errors.AsType[*failure](err); ok && last != nil { // the engine's own words go through; what follows ends the stream
			a.bad = f
			return last, nil
		}
		return nil, err
	}
}

// nextOfLeg is next for the engine that answers now.
func (a *answer) nextOfLeg() ([]byte, error) {
	if a.head != nil {
		if a.buf, a.head = a.head, nil; len(a.buf) > 0 {
			return a.buf, nil
		}
	}
	for {
		switch {
		case a.over, a.done && a.died != nil:
			return nil, io.EOF
		case a.died != nil:
			return nil, a.died
		}
		a.dropBuffers()
		chunk, err := a.resp.Next()
		switch {
		case err != nil && a.done: // nothing is missing, however the connection ended
			return nil, io.EOF
		case err != nil:
			return nil, unexpected(err)
		}
		if a.given == nil && a.plain(chunk) == len(chunk) {
			a.count(chunk)
			return chunk, nil
		}
		if a.buf = a.pass(borrow(len(chunk)+slack), chunk); a.events.Err() != nil {
			return nil, a.events.Err()
		}
		if len(a.buf) > 0 {
			return a.buf, nil
		}
	}
}

// pass appends the events that chunk completes to dst, as the client will see them.
func (a *answer) pass(dst, chunk []byte) []byte {
	n := a.plain(chunk)
	if dst = a.handPlain(dst, chunk[:n]); a.died != nil {
		return dst
	}
	for e := range a.events.Feed(chunk[n:]) {
		if code, isError := openai.HasError(e.Data()); isError {
			if a.given != nil && code >= http.StatusInternalServerError { // its core may have died
				a.died, a.last = a.errorEvent(code, e.Data()), bytes.Clone(e)
				return dst
			}
			a.bad = a.errorEvent(code, e.Data()) // the engine's own words go through; what follows ends the stream
		}
		if !e.IsDone() && !e.IsComment() {
			a.output++
		}
		if dst = a.appendEvent(dst, e); a.died != nil {
			return dst
		}
	}
	return dst
}

// plain returns how much of chunk, from its beginning, is whole events with nothing in them that has to be looked at: in nearly all chunks everything, in most
// others all but the last events.
func (a *answer) plain(chunk []byte) int {
	if len(a.events.Pending()) > 0 {
		return 0
	}
	for _, at := range [...]func([]byte) int{usageAt, doneAt, errorAt, openai.ScrubAt, a.kind().MayEndAt} {
		if i := at(chunk); i >= 0 {
			chunk = chunk[:i]
		}
	}
	if end := bytes.LastIndex(chunk, blankLine); end >= 0 {
		return end + len(blankLine)
	}
	return 0
}

// count counts plain events.
func (a *answer) count(events []byte) {
	n := bytes.Count(events, blankLine)
	a.output += n
	a.sent += n
	a.h.j.q.o.m.events.Add(float64(n))
}

var (
	usageMark = []byte(`"usage"`)
	usageTail = usageMark[1:] // is found faster: quotes are everywhere
	nullMark  = []byte(":null")
	doneMark  = []byte("[DONE]")
	errorMark = []byte(`"error"`)
	blankLine = []byte("\n\n")
)

func doneAt(b []byte) int  { return bytes.Index(b, doneMark) }
func errorAt(b []byte) int { return bytes.Index(b, errorMark) }

// usageAt returns where b may have a usage that says something, or -1. With include_usage vLLM writes one that is null into every event but the last.
func usageAt(b []byte) int {
	for at := 0; ; {
		i := bytes.Index(b[at:], usageTail)
		if i < 0 {
			return -1
		}
		if at += i + len(usageTail); !bytes.HasPrefix(b[at:], nullMark) {
			return at - len(usageTail)
		}
	}
}

// dropBuffers gives back what the client has been given of.
func (a *answer) dropBuffers() {
	giveBuffer(a.buf)
	giveBuffer(a.head)
	a.buf, a.head = nil, nil
}

// close ends the leg, its leases and its span. The engine notices a connection that closes before the end and frees the request.
func (a *answer) close() {
	a.h.stopClock()
	a.guard.stop()
	a.dropBuffers()
	if a.resp != nil {
		a.resp.Close()
	}
	a.endSpan(attribute.Int("gen_ai.usage.output_tokens", a.output))
	a.endSpan = func(...attribute.KeyValue) {}
}

// settle closes the books of an answer that reached its end, well or not.
func (a *answer) settle(f *failure) {
	h, now := a.h, time.Now()
	a.close()
	if f == nil && !a.first.IsZero() {
		h.j.q.o.planner.Finish(h.b, a.promptTokens, a.output, a.first.Sub(h.j.q.start), a.decoded(now).Sub(h.j.q.start), now)
	}
	switch {
	case f == nil:
		a.prove()
	case !a.held:
		h.j.q.o.failedOn(h.b, f, now) // how long it went well is no loss
	}
	h.release()
	if !a.first.IsZero() {
		h.j.rememberText(h.b)
	}
}

// decoded returns when the engine had generated the last token of an answer that ended now, or when it had the first where a client that reads slowly hides that:
// beyond what buffers hold, the engine's answer waits for the client.
func (a *answer) decoded(now time.Time) time.Time {
	const hides = 0.1 // of the time in which the engine generated
	if a.blocked.Seconds() > hides*now.Sub(a.first).Seconds() {
		return a.first
	}
	return now
}

// single serves a request that is one prompt.
func (q *request) single(ctx context.Context, req *openai.Request) *failure {
	j := q.newJob(req, 0)
	f := j.serve(ctx, func(a *answer) *failure {
		if req.Stream {
			return q.stream(ctx, a)
		}
		return q.reply(a)
	})
	q.mode = j.rec.Mode
	return f
}

// reply sends an answer that is not streamed.
func (q *request) reply(a *answer) *failure {
	q.headers(a.h.j.rec)
	q.w.Header().Set("Content-Type", "application/json")
	return q.give(http.StatusOK, a.whole)
}

// give sends a whole body.
func (q *request) give(status int, body []byte) *failure {
	q.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	q.w.WriteHeader(status)
	if _, err := q.w.Write(body); err != nil {
		return q.lost(err)
	}
	return nil
}

// stream copies events to the client as they come, flushed at once.
func (q *request) stream(ctx context.Context, a *answer) *failure {
	q.headers(a.h.j.rec)
	h := q.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	q.w.WriteHeader(http.StatusOK)
	a.resp.SetIdle(q.snap.cfg.Timeouts.DecodeIdle)
	for {
		out, err := a.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return q.broken(ctx, a.to, a.sent, err)
		}
		if a.bad != nil && !a.done {
			out = append(out, a.kind().EndMark()...) // the engine's own may come in another read, or never
		}
		begun := time.Now()
		if err := q.w.send(out); err != nil {
			return q.lost(err)
		}
		a.blocked += time.Since(begun)
		if a.bad != nil {
			a.bad.written = true
			return a.bad
		}
	}
}

// broken ends a stream whose engine broke off after it had sent so many events: with an error event, which clients of the API know how to read.
func (q *request) broken(ctx context.Context, to *reach, sent int, err error) *failure {
	f := legFailed(ctx, "stream", to.member.ID, err)
	if f.status != clientGone {
		_ = q.w.send(f.event(q.kind, sent))
		q.o.log.Warn("stream broke off", "id", q.id, "replica", string(to.member.ID), "kind", f.kind, "error", errText(err))
	}
	f.written = true
	return f
}

// lost is a client that stopped reading.
func (q *request) lost(err error) *failure {
	return &failure{phase: "client", owner: "client", kind: goneKind, status: clientGone, err: err, written: true}
}

// headers tells the client what was decided, where the configuration wants it. Names, never addresses of our choosing.
func (q *request) headers(rec *Record) {
	h := q.w.Header()
	if !q.snap.cfg.Response.Headers {
		return
	}
	h.Set("X-Tandem-Decision", rec.ID)
	h.Set("X-Tandem-Mode", rec.Mode)
	if rec.Captured >= 0 {
		h.Set("X-Tandem-Matched-Tokens", strconv.Itoa(rec.Captured))
	}
}
