package orchestrator

import (
	"bytes"

	"tandem/internal/openai"
)

// Nearly all events of a stream hold nothing that has to be looked at, and go on as they came, many at a
// time: the marks of those that may are searched for in the bytes of a whole read.

var (
	usageMark = []byte(`"usage"`)
	usageTail = usageMark[1:] // is found faster: quotes are everywhere
	nullMark  = []byte(":null")
	doneMark  = []byte("[DONE]")
	errorMark = []byte(`"error"`)
	blankLine = []byte("\n\n")
)

// plain returns how much of chunk, from its beginning, is whole events with nothing in them that has to be
// looked at: in nearly all chunks everything, in most others all but the last events.
func (s *eventReader) plain(chunk []byte) int {
	if len(s.cut.Pending()) > 0 {
		return 0
	}
	for _, at := range [...]func([]byte) int{usageAt, doneAt, errorAt, openai.ScrubAt, s.kind.MayEndAt} {
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
func (s *eventReader) count(events []byte) {
	n := bytes.Count(events, blankLine)
	s.output += n
	s.events += n
	s.said.event(events)
}

func doneAt(b []byte) int  { return bytes.Index(b, doneMark) }
func errorAt(b []byte) int { return bytes.Index(b, errorMark) }

// usageAt returns where b may have a usage that says something, or -1. With include_usage vLLM writes one
// that is null into every event but the last.
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
