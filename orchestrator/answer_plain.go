package orchestrator

import (
	"bytes"

	"github.com/tandem-router/tandem/internal/openai"
)

// Nearly all events of a stream need no inspection and pass on unchanged, many at a time. The bytes of a
// whole read are searched for the marks of events that need one.

var (
	usageMark = []byte(`"usage"`)
	doneMark  = []byte("[DONE]")
	errorMark = []byte(`"error"`)
	blankLine = []byte("\n\n")
)

// plain returns the length of the whole events at the beginning of chunk that need no inspection. In nearly
// all chunks these are all events; in most others, all but the last events.
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
