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

// eventReader reads an engine's stream and returns the part that may go to a client: whole events without
// transfer parameters. [eventReader.readFirst] holds events back until the first generated token, so that an
// earlier error has its own status. [deliver] passes events on. An error event is the last event. One
// goroutine owns the reader.
type eventReader struct {
	resp *engine.Response
	kind openai.Kind // of the API, 0 where it has no events of its own
	at   replica.ID
	idle time.Duration // for one read behind the first content
	leg  legListener   // nil for an answer that is passed on unread

	cut     openai.Events
	buffers lentBuffers
	usage   answerUsage
	end     streamEnd
	flow    eventFlow

	said  *observe.Said     // content for a trace, nil without a trace
	given *openai.Delivered // content that the client has got, nil if no engine may continue
}

// lentBuffers is the borrowed memory of what has been read.
type lentBuffers struct {
	head []byte // events from before the answer was known to be good, or what a client sees of a whole one
	buf  []byte // what read has returned, where that was borrowed
}

// drop gives back what the client has been given of.
func (l *lentBuffers) drop() {
	giveBuffer(l.buf)
	giveBuffer(l.head)
	l.buf, l.head = nil, nil
}

// answerUsage is how many tokens an answer took.
type answerUsage struct {
	output         int // events that were generated, or tokens where the engine told
	promptTokens   int
	reportedCached int // cached prompt tokens by the engine's report, -1 unknown
	// cached is the prefix match that the client is told: the prefill engine's. If that is unknown, the
	// answering engine's own number stays.
	cached  openai.CachedPrompt
	unasked unaskedUsage
}

// streamEnd is how a stream ends.
type streamEnd struct {
	done bool     // its last event has been read
	over bool     // the client gets the head, and nothing more
	died error    // why it ends here, where no read said so
	last []byte   // the engine's own event about that
	bad  *failure // the engine's error event that ends it, nil when well
}

// slack is by how much events may grow when their usage is rewritten.
const slack = 64

// readFirst reads a stream up to its first content, its end, or its error: an event of the engine's, or what
// a read said.
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

// findFirst puts the events of chunk into the head up to the first that is content or the end, and returns
// what follows.
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

// generated reports whether an event shows that the engine has begun to generate. What is passed on may hold
// events that we do not know: there it is the first that does more than open the stream.
func (s *eventReader) generated(data []byte) bool {
	if s.leg == nil {
		return len(data) > 0 && !s.kind.Opens(data)
	}
	return openai.HasContent(data)
}

// eventSender takes n whole events on their way to a client, which are valid until it returns.
type eventSender func(events []byte, n int) *failure

// eventSource returns the next events of a stream and the reader that has them; io.EOF after the end of a
// good stream.
type eventSource func() (*eventReader, []byte, error)

// deliver gives a client's side the events that next returns, with how many they are, until the stream ends.
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
			s.end.bad = s.end.bad.withDelivered() // with the answer as far as it is delivered now
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

// stream delivers what the engine says to its end.
func (s *eventReader) stream(ctx context.Context, to eventSender) *failure {
	return deliver(ctx, func() (*eventReader, []byte, error) {
		out, err := s.read()
		return s, out, err
	}, to)
}

// read returns what may go to the client now; io.EOF after the end of a good stream. The bytes are valid
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
		case chunk == nil: // what is held has waited long enough
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

// ended is what read returns when nothing more comes.
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

// complete reports whether nothing is missing of a stream that ended so. Behind its last event it may end
// anyhow; of an API without one, the end of the answer says so, where that is more than the end of the
// connection.
func (s *eventReader) complete(err error) bool {
	return s.end.done || s.leg == nil && s.kind == 0 && errors.Is(err, io.EOF) && s.resp.Delimited()
}

// unexpected makes an early end of a stream an error like any other.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// pass appends the events that chunk completes to dst, as the client will see them, up to an error.
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

// passError lets the engine's own words about its failure through, unless another may go on: its core may
// have died.
func (s *eventReader) passError(dst []byte, e openai.Event, code int) []byte {
	f := s.errorEvent(code, e.Data())
	if s.given != nil && f.reply.status >= http.StatusInternalServerError {
		s.end.died, s.end.last = f, bytes.Clone(e)
		return dst
	}
	s.end.bad = f
	return s.appendEvent(s.releaseNamed(dst, s.usage.unasked.name), e)
}

// errorEvent is a failure that an engine reported inside a 200. A client that has seen nothing yet gets it
// with its real status. Behind content it has nothing to do with the replica that prefilled: its blocks were
// there.
func (s *eventReader) errorEvent(code int, data []byte) *failure {
	return answered(kindErrorEvent, site{phase: phaseDecode, at: s.at, status: errorStatus(code)},
		bytes.Clone(data), "")
}

// errorStatus is the status that the code of an error event stands for.
func errorStatus(code int) int {
	if code < 400 || code > 599 {
		return http.StatusInternalServerError
	}
	return code
}

// appendEvent appends an event as the client will see it, and counts what it carries.
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

// hand appends what the client gets of an event.
func (s *eventReader) hand(dst []byte, e openai.Event) []byte {
	if s.given == nil {
		return append(dst, e...)
	}
	dst, s.end.died = s.given.Event(dst, e)
	return dst
}

// handPlain appends what the client gets of events in which nothing has to be looked at but their token ids.
func (s *eventReader) handPlain(dst, events []byte) []byte {
	s.count(events)
	if s.given == nil {
		return append(dst, events...)
	}
	dst, s.end.died = s.given.Append(dst, events)
	return dst
}

// noteUsage takes down what the engine says that the request took.
func (s *eventReader) noteUsage(u openai.Usage) {
	s.usage.reported(u)
	s.usage.cached = s.leg.prefillCached()
	s.leg.delivered(u)
}
