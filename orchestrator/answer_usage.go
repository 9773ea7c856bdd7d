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

// unaskedUsage is the usage of a stream for which the router has asked although the client did not.
type unaskedUsage struct {
	on   bool   // nothing shows that the client would get the usage anyway
	name []byte // the engine's fingerprint as a probe saw it, a raw string; nil unknown
	held []byte // the event with the finish reason, unchanged; nil: no event is held
}

// holdFor limits how long the last event of an answer waits for the usage. Both are from the same step of the
// engine and arrive together, unless the network has lost a packet. A lost packet is sent again after 200 ms.
const holdFor = 250 * time.Millisecond

// take appends the client's part of an event, without the usage for which the client did not ask.
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
	case reported: // in a chunk of the answer: the engine always reports usage (--enable-force-include-usage)
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

// hide reads the usage. It gives the end of the answer the fingerprint that it has without usage.
func (s *eventReader) hide(dst []byte, e openai.Event) []byte {
	said := s.kind.Find(e)
	if u, ok := said.Usage(); ok {
		s.noteUsage(u)
	}
	return s.releaseNamed(dst, openai.Fingerprint(e.Data()))
}

// releaseNamed appends the held event in the form that the engine uses without usage.
func (s *eventReader) releaseNamed(dst, name []byte) []byte {
	if s.usage.unasked.held != nil {
		s.usage.unasked.held = openai.AppendNamed(nil, s.usage.unasked.held, name)
	}
	return s.release(dst)
}

// release appends the held event, if there is one. All later events wait for this one.
func (s *eventReader) release(dst []byte) []byte {
	held := s.usage.unasked.held
	if held == nil {
		return dst
	}
	s.usage.unasked.held = nil
	return s.appendEvent(dst, held)
}

// more returns the engine's next bytes, or none if the held event has waited long enough.
func (s *eventReader) more() ([]byte, error) {
	if s.usage.unasked.held == nil {
		return s.resp.Next()
	}
	return s.resp.NextWithin(holdFor)
}

// reported records the engine's own numbers.
func (w *answerUsage) reported(u openai.Usage) {
	w.promptTokens, w.reportedCached = u.Prompt, u.Cached
	if u.Completion > 0 {
		w.output = u.Completion
	}
}
