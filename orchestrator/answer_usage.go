package orchestrator

import (
	"bytes"
	"time"

	"github.com/tandem-router/tandem/internal/openai"
)

// The router needs the usage of every stream, and most clients do not ask for it. So the router asks, and
// removes the additional bytes from the stream (docs/decisions/0032-request-usage-on-streams.md).
//
//	{"choices":[{… "finish_reason":null}]}                  to the client, as it comes
//	{"choices":[{… "finish_reason":"stop"}]}                held, until it has the fingerprint
//	{"choices":[],"usage":{…},"system_fingerprint":"…"}     read, and left out
//	[DONE]                                                  to the client

// unaskedUsage is the usage of a stream for which we have asked, and the client has not.
type unaskedUsage struct {
	on   bool   // and nothing shows that the client gets it all the same
	name []byte // the engine's fingerprint as a probe saw it, a raw string; nil unknown
	held []byte // the event with the finish reason, as it came; nil when none is held
}

// holdFor is how long the last event of an answer waits for the usage behind it. Both are of the same step of
// the engine and come at once, unless the network has lost a packet, which is sent again after 200 ms.
const holdFor = 250 * time.Millisecond

// take appends what the client gets of an event, without the usage that it did not ask for.
func (s *eventReader) take(dst []byte, e openai.Event) []byte {
	if !s.usage.unasked.on {
		return s.appendEvent(dst, e)
	}
	data := e.Data()
	if openai.UsageOnly(data) {
		return s.hide(dst, e)
	}
	said := s.kind.Find(e)
	switch _, reported := said.Usage(); {
	case reported: // in a chunk of the answer: the engine tells everybody (--enable-force-include-usage)
		s.usage.unasked.on = false
	case openai.Finishes(data):
		dst = s.release(dst)
		s.usage.unasked.held = bytes.Clone(e)
		return dst
	}
	if dst = s.release(dst); s.end.died != nil {
		return dst
	}
	return s.appendEvent(dst, e)
}

// hide reads the usage, and gives the end of the answer the fingerprint that it would have had without.
func (s *eventReader) hide(dst []byte, e openai.Event) []byte {
	said := s.kind.Find(e)
	if u, ok := said.Usage(); ok {
		s.noteUsage(u)
	}
	return s.releaseNamed(dst, openai.Fingerprint(e.Data()))
}

// releaseNamed appends the event that is held as the engine would have said it without usage.
func (s *eventReader) releaseNamed(dst, name []byte) []byte {
	if s.usage.unasked.held != nil {
		s.usage.unasked.held = openai.AppendNamed(nil, s.usage.unasked.held, name)
	}
	return s.release(dst)
}

// release appends the event that is held, if there is one. Whatever comes behind it waits for that.
func (s *eventReader) release(dst []byte) []byte {
	held := s.usage.unasked.held
	if held == nil {
		return dst
	}
	s.usage.unasked.held = nil
	return s.appendEvent(dst, held)
}

// more reads on: the engine's next bytes, or none where what is held has waited long enough.
func (s *eventReader) more() ([]byte, error) {
	if s.usage.unasked.held == nil {
		return s.resp.Next()
	}
	return s.resp.NextWithin(holdFor)
}

// reported takes down the engine's own numbers.
func (w *answerUsage) reported(u openai.Usage) {
	w.promptTokens, w.reportedCached = u.Prompt, u.Cached
	if u.Completion > 0 {
		w.output = u.Completion
	}
}
