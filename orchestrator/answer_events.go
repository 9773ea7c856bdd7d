package orchestrator

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/observe"
)

// eventReader reads an engine's stream and returns the part for the client: whole events without transfer
// parameters. [eventReader.readFirst] delays events until the first generated token, so that an error before
// it has its own status. [deliver] passes events on. An error event is the last event. One goroutine owns the
// reader.
type eventReader struct {
	resp *engine.Response
	kind openai.Kind // of the API, 0 where it has no events of its own
	at   replica.ID
	idle time.Duration // time limit for one read after the first content
	leg  legListener   // nil for an answer that is passed on unread

	cut     openai.Events
	buffers lentBuffers
	usage   answerUsage
	end     streamEnd
	flow    eventFlow

	said  *observe.Said     // content for a trace, nil without a trace
	given *openai.Delivered // content that the client has got; nil if no engine may continue the answer
}

// lentBuffers is the borrowed memory of bytes that were read.
type lentBuffers struct {
	head []byte // events from before the answer proved good, or the client's view of a whole answer
	buf  []byte // what read has returned, if borrowed
}

// drop gives back buffers that the client no longer needs.
func (l *lentBuffers) drop() {
	giveBuffer(l.buf)
	giveBuffer(l.head)
	l.buf, l.head = nil, nil
}

// answerUsage counts the tokens of an answer.
type answerUsage struct {
	output         int // generated events, or tokens if the engine reported them
	promptTokens   int
	reportedCached int // cached prompt tokens by the engine's report; -1: unknown
	// cached is the prefix match that is reported to the client: that of the prefill engine. If it is unknown,
	// the client gets the number of the answering engine.
	cached  openai.CachedPrompt
	unasked unaskedUsage
}

// streamEnd describes the end of a stream.
type streamEnd struct {
	done bool     // its last event has been read
	over bool     // the client gets the head and nothing more
	died error    // the cause of the end, unless a read returned it
	last []byte   // the engine's own event about the end
	bad  *failure // the engine's error event at the end; nil for a good end
}

// slack is the number of bytes by which events may grow when their usage is rewritten.
const slack = 64

// readFirst reads a stream up to its first content, its end, or its error. The error is an event of the
// engine, or the error of a read.
func (s *eventReader) readFirst() (said *failure, err error) {
	for {
		chunk, err := s.resp.Next()
		switch {
		case err != nil && s.complete(err):
			return nil, nil
		case err != nil:
			return nil, unexpected(err)
		}
		if s.buffers.head == nil {
			s.buffers.head = borrow(len(chunk) + slack)
		}
		rest, good, f := s.findFirst(chunk)
		if good {
			s.buffers.head = s.pass(s.buffers.head, rest)
		}
		switch {
		case f != nil:
			return f, nil
		case !good && s.end.died != nil:
			return nil, s.end.died
		case s.cut.Err() != nil:
			return nil, s.cut.Err()
		case good && s.end.done && s.flow.events < 2 && s.kind != 0: // an end, and nothing that ends
			return nil, errNoAnswer
		case good:
			s.resp.SetIdle(s.idle)
			return nil, nil
		}
	}
}

// findFirst puts the events of chunk into the head, up to the first content or the end. It returns the
// remaining bytes.
func (s *eventReader) findFirst(chunk []byte) (rest []byte, good bool, f *failure) {
	for {
		var e openai.Event
		if e, chunk = s.cut.Cut(chunk); e == nil {
			return nil, false, nil
		}
		data := e.Data()
		if code, isError := openai.HasError(data); isError {
			return nil, false, s.errorEvent(code, data)
		}
		content := s.generated(data)
		if content {
			s.usage.output++
		}
		if s.buffers.head = s.take(s.buffers.head, e); s.end.died != nil {
			return nil, false, nil
		}
		if content || s.end.done {
			return chunk, true, nil
		}
	}
}

// generated reports whether an event shows that the engine has begun to generate. Other APIs may have unknown
// events. There the first event that does more than open the stream counts.
func (s *eventReader) generated(data []byte) bool {
	if s.leg == nil {
		return len(data) > 0 && !s.kind.Opens(data)
	}
	return openai.HasContent(data)
}

// eventSender sends n whole events to a client. The events are valid until it returns.
type eventSender func(events []byte, n int) *failure

// eventSource returns the next events of a stream, and their reader. It returns io.EOF after the end of a
// good stream.
type eventSource func() (*eventReader, []byte, error)

// deliver sends the events that next returns, until the stream ends.
func deliver(ctx context.Context, next eventSource, to eventSender) *failure {
	for {
		s, out, err := next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return legFailed(ctx, phaseStream, s.at, err)
		}
		if s.end.bad != nil {
			s.end.bad = s.end.bad.withDelivered() // out has the engine's own event
		}
		n := s.flow.events - s.flow.gave
		s.flow.gave = s.flow.events
		began := time.Now()
		s.noteProgress(began)
		if f := to(out, n); f != nil {
			return f
		}
		if s.flow.blocked += time.Since(began); s.end.bad != nil {
			return s.end.bad
		}
	}
}

// stream delivers the engine's events to their end.
func (s *eventReader) stream(ctx context.Context, to eventSender) *failure {
	return deliver(ctx, func() (*eventReader, []byte, error) {
		out, err := s.read()
		return s, out, err
	}, to)
}

// read returns the next bytes for the client, and io.EOF after the end of a good stream. The bytes are valid
// until the next call.
func (s *eventReader) read() ([]byte, error) {
	if s.buffers.head != nil {
		if s.buffers.buf, s.buffers.head = s.buffers.head, nil; len(s.buffers.buf) > 0 {
			return s.buffers.buf, nil
		}
	}
	for {
		switch {
		case s.end.over, s.end.done && s.end.died != nil:
			return nil, io.EOF
		case s.end.died != nil:
			return nil, s.end.died
		}
		s.buffers.drop()
		chunk, err := s.more()
		switch {
		case err != nil:
			return s.ended(err)
		case chunk == nil: // the held event has waited long enough
			s.buffers.buf = s.releaseNamed(borrow(0), s.usage.unasked.name)
		case s.given == nil && s.plain(chunk) == len(chunk):
			s.count(chunk)
			return chunk, nil
		default:
			s.buffers.buf = s.pass(borrow(len(chunk)+slack), chunk)
		}
		if s.cut.Err() != nil {
			return nil, s.cut.Err()
		}
		if len(s.buffers.buf) > 0 {
			return s.buffers.buf, nil
		}
	}
}

// ended returns the result of read at the end of the stream.
func (s *eventReader) ended(err error) ([]byte, error) {
	if !s.complete(err) {
		return nil, unexpected(err)
	}
	if rest := s.cut.Pending(); s.leg == nil && len(rest) > 0 {
		s.end.over = true
		return rest, nil
	}
	return nil, io.EOF
}

// complete reports whether the whole stream was received. After the last event, any end is good. An API
// without a last event needs the end of the answer itself: the end of the connection is not enough.
func (s *eventReader) complete(err error) bool {
	return s.end.done || s.leg == nil && s.kind == 0 && errors.Is(err, io.EOF) && s.resp.Delimited()
}

// unexpected returns io.ErrUnexpectedEOF for io.EOF, and other errors unchanged.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// pass appends the events that chunk completes to dst, in the form for the client, up to an error.
func (s *eventReader) pass(dst, chunk []byte) []byte {
	n := s.plain(chunk)
	if dst = s.handPlain(dst, chunk[:n]); s.end.died != nil {
		return dst
	}
	for e := range s.cut.Feed(chunk[n:]) {
		if code, isError := openai.HasError(e.Data()); isError {
			return s.passError(dst, e, code)
		}
		if !e.IsDone() && !e.IsComment() && !s.kind.Ends(e.Data()) {
			s.usage.output++
		}
		if dst = s.take(dst, e); s.end.died != nil {
			return dst
		}
	}
	return dst
}

// passError passes the engine's own error event on, unless another engine may continue because this engine's
// core may have died.
func (s *eventReader) passError(dst []byte, e openai.Event, code int) []byte {
	f := s.errorEvent(code, e.Data())
	if s.given != nil && f.reply.status >= http.StatusInternalServerError {
		s.end.died, s.end.last = f, bytes.Clone(e)
		return dst
	}
	s.end.bad = f
	return s.appendEvent(s.releaseNamed(dst, s.usage.unasked.name), e)
}

// errorEvent returns a failure that an engine reported inside a 200. If the client has seen nothing yet, it
// gets the real status. After the first content the prefill replica is not the cause, because its blocks had
// arrived.
func (s *eventReader) errorEvent(code int, data []byte) *failure {
	return answered(kindErrorEvent, site{phase: phaseDecode, at: s.at, status: errorStatus(code)},
		bytes.Clone(data), "")
}

// errorStatus returns the HTTP status for the code of an error event.
func errorStatus(code int) int {
	if code < 400 || code > 599 {
		return http.StatusInternalServerError
	}
	return code
}

// appendEvent appends an event in the form for the client, and counts its tokens.
func (s *eventReader) appendEvent(dst []byte, e openai.Event) []byte {
	s.flow.events++
	s.said.Event(e.Data())
	if s.kind.Ends(e.Data()) {
		s.end.done = true
	}
	if e.IsDone() {
		s.end.done = true
		return append(dst, e...)
	}
	if bytes.Contains(e, usageMark) {
		said := s.kind.Find(e)
		if u, ok := said.Usage(); ok && s.leg == nil {
			s.usage.reported(u)
		} else if ok {
			s.noteUsage(u)
			return s.hand(dst, said.Shown(make([]byte, 0, len(e)+slack), s.usage.cached))
		}
	}
	if openai.NeedsScrub(e) {
		return s.hand(dst, openai.Scrub(nil, e))
	}
	return s.hand(dst, e)
}

// hand appends the client's part of an event.
func (s *eventReader) hand(dst []byte, e openai.Event) []byte {
	if s.given == nil {
		return append(dst, e...)
	}
	dst, s.end.died = s.given.Event(dst, e)
	return dst
}

// handPlain appends the client's part of events that need no inspection besides their token ids.
func (s *eventReader) handPlain(dst, events []byte) []byte {
	s.count(events)
	if s.given == nil {
		return append(dst, events...)
	}
	dst, s.end.died = s.given.Append(dst, events)
	return dst
}

// noteUsage records the usage that the engine reports.
func (s *eventReader) noteUsage(u openai.Usage) {
	s.usage.reported(u)
	s.usage.cached = s.leg.prefillCached()
	s.leg.delivered(u)
}
