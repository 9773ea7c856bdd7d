package openai

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// collect feeds the chunks to s and returns copies of the events.
func collect(s *Events, chunks ...[]byte) (events []string) {
	for _, chunk := range chunks {
		mine := bytes.Clone(chunk)
		for e := range s.Feed(mine) {
			events = append(events, string(e))
		}
		for i := range mine {
			mine[i] = '#' // s must not keep the memory of its caller
		}
	}
	return events
}

// slowEvents has the same result as collect. It gets the whole stream at once.
func slowEvents(stream string) (events []string, rest string) {
	start, line := 0, 0
	for i := 0; i < len(stream); i++ {
		end := i
		switch {
		case stream[i] == '\n':
		case stream[i] == '\r' && i+1 < len(stream) && stream[i+1] == '\n':
			i++
		case stream[i] == '\r' && i+1 < len(stream):
		default:
			continue
		}
		if end == line {
			events = append(events, stream[start:i+1])
			start = i + 1
		}
		line = i + 1
	}
	return events, stream[start:]
}

func TestEventsOfAnySplit(t *testing.T) {
	for _, stream := range []string{
		"data: a\n\ndata: b\n\ndata: [DONE]\n\n", "data: a\r\n\r\ndata: b\r\n\r\n", "data: a\r\rdata: b\r\r",
		"data: a\r\rx", ": keep-alive\n\ndata: a\n\n",
		"\n\n\ndata: a\n\n", "data: a\r\n\ndata: b\n\r\n", "event: x\ndata: 1\ndata: 2\n\nhalf", "\r\n\r", "\r", "",
		"data: a\n\r\n\r\r\n\n",
	} {
		want, rest := slowEvents(stream)
		for i := range len(stream) + 1 {
			for j := i; j <= len(stream); j++ {
				var s Events
				got := collect(&s, []byte(stream[:i]), []byte(stream[i:j]), []byte(stream[j:]))
				if !slices.Equal(got, want) || string(s.Pending()) != rest {
					t.Fatalf("%q split at %d and %d: got %q and %q, want %q and %q",
						stream, i, j, got, s.Pending(), want, rest)
				}
			}
		}
	}
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte("data: a\n\ndata: b\r\n\r\ndata: c\r\r: x\n\n"), uint64(1))
	f.Add([]byte("\r\r\n\n\r\n"), uint64(7))
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		var chunks [][]byte
		for rest := stream; len(rest) > 0; {
			n := rnd.IntN(min(len(rest), 9)) + 1
			chunks = append(chunks, rest[:n])
			rest = rest[n:]
		}
		want, rest := slowEvents(string(stream))
		var s Events
		got := collect(&s, chunks...)
		if !slices.Equal(got, want) || string(s.Pending()) != rest {
			t.Fatalf("%q: got %q and %q, want %q and %q", stream, got, s.Pending(), want, rest)
		}
		for _, e := range got {
			ev := Event(e)
			_ = ev.Data()
			_ = ev.IsDone()
			_ = ev.IsComment()
			HasContent(ev.Data())
			HasError(ev.Data())
		}
	})
}

func TestEventsAreNotCopied(t *testing.T) {
	var s Events
	chunk := []byte("data: a\n\ndata: b\n\ndata: ")
	i := 0
	for e := range s.Feed(chunk) {
		if unsafe.SliceData(e) != &chunk[9*i] {
			t.Errorf("event %d is a copy, want a part of the chunk", i)
		}
		i++
	}
	if i != 2 || string(s.Pending()) != "data: " {
		t.Errorf("got %d events and %q pending, want 2 and the start of the third", i, s.Pending())
	}
	next := []byte("c\n\ndata: d\n\ndata: ")
	if n := testing.AllocsPerRun(100, func() {
		for range s.Feed(next) {
		}
	}); n > 0 {
		t.Errorf("got %v allocations for a chunk, want none", n)
	}
}

func TestEventsAreBounded(t *testing.T) {
	for name, chunks := range map[string][]string{
		"whole":     {"data: 0123456789\n\n"},
		"in parts":  {"data: 01", "23456789\n\n"},
		"never end": {"data: 01", "23456789", "0123456789"},
	} {
		s := Events{Limit: 10}
		if got := collect(&s, []byte("a\n\n")); len(got) != 1 {
			t.Fatalf("%s: got %q for a short event, want one event", name, got)
		}
		for _, c := range chunks {
			if got := collect(&s, []byte(c)); len(got) > 0 {
				t.Errorf("%s: got %q, want no event", name, got)
			}
		}
		if !errors.Is(s.Err(), ErrEventTooLong) {
			t.Errorf("%s: got %v, want ErrEventTooLong", name, s.Err())
		}
	}
}

func TestEventData(t *testing.T) {
	for _, tt := range []struct {
		event, data   string
		done, comment bool
	}{
		{"data: {\"a\":1}\n\n", `{"a":1}`, false, false},
		{"data:{}\r\n\r\n", `{}`, false, false},
		{"event: x\ndata: 1\n\n", `1`, false, false},
		{"data: 1\ndata: 2\ndata\n\n", "1\n2\n", false, false},
		{"data: [DONE]\n\n", `[DONE]`, true, false},
		{": keep-alive\n\n", "", false, true},
		{"\n", "", false, true},
		{"database: 1\n\n", "", false, false},
		{"data:  two spaces\r\r", " two spaces", false, false},
	} {
		e := Event(tt.event)
		if string(e.Data()) != tt.data || e.IsDone() != tt.done || e.IsComment() != tt.comment {
			t.Errorf("%q: got data %q, done %v, comment %v; want %q, %v, %v",
				tt.event, e.Data(), e.IsDone(), e.IsComment(), tt.data, tt.done, tt.comment)
		}
	}
}

func BenchmarkEvents(b *testing.B) {
	chunk := []byte(strings.Repeat(`data: {"id":"chatcmpl-t-3","object":"chat.completion.chunk",`+
		`"created":1795242180,"model":"tiny","choices":[{"index":0,"delta":{"content":"x"}}]}`+"\n\n", 8))
	b.SetBytes(int64(len(chunk)))
	b.ReportAllocs()
	var s Events
	for b.Loop() {
		n := 0
		for e := range s.Feed(chunk) {
			if !NeedsScrub(e) {
				n++
			}
		}
		if n != 8 {
			b.Fatalf("got %d events, want 8", n)
		}
	}
}
