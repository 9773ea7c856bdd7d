package openai

import (
	"bytes"
	"errors"
	"iter"
	"slices"
)

// Event is one server-sent event with its blank line, as it came.
type Event []byte

// Data returns the event's data without the field name, sharing its memory unless there are several data
// lines; nil when it has none.
func (e Event) Data() []byte {
	var data []byte
	n := 0
	for at := range e.dataLines() {
		switch line := at.of(e); n {
		case 0:
			data = slices.Clip(line)
		default:
			data = append(append(data, '\n'), line...)
		}
		n++
	}
	return data
}

// dataLines yields where the values of the data lines are.
func (e Event) dataLines() iter.Seq[span] {
	return func(yield func(span) bool) {
		for pos := 0; pos < len(e); {
			end, next := lineEnd(e, pos)
			value := span{pos + len("data"), end}
			if bytes.HasPrefix(e[pos:end], []byte("data")) {
				switch {
				case value.start == end:
				case e[value.start] != ':':
					value.start = -1
				default:
					if value.start++; value.start < end && e[value.start] == ' ' {
						value.start++
					}
				}
				if value.start >= 0 && !yield(value) {
					return
				}
			}
			pos = next
		}
	}
}

// lineEnd returns where the line that begins at pos ends and where the next begins.
func lineEnd(b []byte, pos int) (end, next int) {
	i := bytes.IndexByte(b[pos:], '\n')
	if i < 0 {
		i = len(b) - pos
	}
	if cr := bytes.IndexByte(b[pos:pos+i], '\r'); cr >= 0 {
		i = cr
	}
	end = pos + i
	next = end + 1
	if next < len(b) && b[end] == '\r' && b[next] == '\n' {
		next++
	}
	return end, min(next, len(b))
}

// IsDone reports whether the event is the end marker.
func (e Event) IsDone() bool { return string(bytes.TrimSpace(e.Data())) == "[DONE]" }

// IsComment reports whether the event holds nothing but comments and blank lines, as keep-alives do.
func (e Event) IsComment() bool {
	for pos := 0; pos < len(e); {
		end, next := lineEnd(e, pos)
		if end > pos && e[pos] != ':' {
			return false
		}
		pos = next
	}
	return true
}

// ErrEventTooLong says that an event passed the limit of [Events].
var ErrEventTooLong = errors.New("server-sent event too long")

// Events cuts a stream into events, however the bytes were split. The zero value is ready. Not safe for
// concurrent use.
//
// Lines end in \n, \r\n or \r. An event that ends in a lone \r is complete only with the byte after it, which
// may be a \n that belongs to it. The events of a stream and [Events.Pending] at its end are together the
// stream's bytes.
type Events struct {
	Limit int // bytes of one event, default 16 MiB

	held    []byte // begin of the event that is not complete
	content bool   // the line being read has a byte
	cr      bool   // the last byte was a \r; a \n may still follow
	err     error
}

// Feed yields the events that chunk completes. An event is valid until the next one is asked for and shares
// chunk's memory when it lies whole in it. When the caller breaks off, the rest of chunk is dropped.
func (s *Events) Feed(chunk []byte) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		for {
			var e Event
			if e, chunk = s.Cut(chunk); e == nil || !yield(e) {
				return
			}
		}
	}
}

// Cut returns the first event that chunk completes and the bytes behind it, which the caller feeds next. If
// chunk completes no event, Cut keeps it and the event is nil. The event is valid as in [Events.Feed].
func (s *Events) Cut(chunk []byte) (e Event, rest []byte) {
	if s.err != nil {
		return nil, nil
	}
	end := s.find(chunk, 0)
	if end < 0 {
		s.hold(chunk)
		return nil, nil
	}
	e = Event(chunk[:end])
	if len(s.held) > 0 {
		e = append(s.held, e...)
		s.held = e[:0]
	}
	if len(e) > s.limit() {
		s.err = ErrEventTooLong
		return nil, nil
	}
	return e, chunk[end:]
}

func (s *Events) limit() int {
	if s.Limit > 0 {
		return s.Limit
	}
	return 16 << 20
}

func (s *Events) hold(rest []byte) {
	if len(s.held)+len(rest) > s.limit() {
		s.err = ErrEventTooLong
		return
	}
	s.held = append(s.held, rest...)
}

// find returns where in b the event being read ends, looking from i, or -1.
func (s *Events) find(b []byte, i int) int {
	if s.cr && i < len(b) {
		s.cr = false
		if b[i] == '\n' {
			i++
		}
		if s.blank() {
			return i
		}
	}
	for i < len(b) {
		n := bytes.IndexByte(b[i:], '\n')
		if n < 0 {
			n = len(b) - i
		}
		if cr := bytes.IndexByte(b[i:i+n], '\r'); cr >= 0 {
			n = cr
		}
		s.content = s.content || n > 0
		if i += n; i == len(b) {
			break
		}
		i++
		if b[i-1] == '\r' {
			if i == len(b) {
				s.cr = true
				break
			}
			if b[i] == '\n' {
				i++
			}
		}
		if s.blank() {
			return i
		}
	}
	return -1
}

// blank ends a line and reports whether it was blank.
func (s *Events) blank() bool {
	was := !s.content
	s.content = false
	return was
}

// Pending returns the bytes of the event that is not complete yet.
func (s *Events) Pending() []byte { return s.held }

// Err returns ErrEventTooLong once an event was; nothing is yielded from then on.
func (s *Events) Err() error { return s.err }
