package orchestrator

import (
	"bytes"

	"github.com/tandem-router/tandem/internal/openai"
)

// Nearly all events of a stream hold nothing that has to be looked at, and go on as they came, many at a
// time: the marks of those that may are searched for in the bytes of a whole read.

var (
	usageMark = []byte(`"usage"`)
	doneMark  = []byte("[DONE]")
	errorMark = []byte(`"error"`)
	blankLine = []byte("\n\n")
)

// plain returns how much of chunk, from its beginning, is whole events with nothing in them that has to be
// looked at: in nearly all chunks everything, in most others all but the last events.
func (s *eventReader) plain(chunk []byte) int {
	if len(s.cut.Pending()) > 0 || s.usage.unasked.held != nil {
		return 0
	}
	for _, at := range [...]func([]byte) int{openai.UsageAt, doneAt, errorAt, openai.ScrubAt, s.kind.MayEndAt} {
		if i := at(chunk); i >= 0 {
			chunk = chunk[:i]
		}
	}
	if s.usage.unasked.on {
		if i := openai.FinishAt(chunk); i >= 0 {
			chunk = chunk[:i]
		}
	}
	if end := bytes.LastIndex(chunk, blankLine); end >= 0 {
		return end + len(blankLine)
	}
	return 0
}

// count counts plain events.
func (s *eventReader) count(events []byte) {
	n := bytes.Count(events, blankLine)
	s.usage.output += n
	s.flow.events += n
	s.said.Event(events)
}

func doneAt(b []byte) int  { return bytes.Index(b, doneMark) }
func errorAt(b []byte) int { return bytes.Index(b, errorMark) }
