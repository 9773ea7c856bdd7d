package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Format names a kind of file.
type Format string

// The formats. Auto looks at the first line.
const (
	Auto     Format = ""
	Mooncake Format = "mooncake"
	Weka     Format = "weka"
	LMCache  Format = "lmcache"
	Azure    Format = "azure"
	Workload Format = "workload" // of a recorded vLLM run
	Capture  Format = "capture"  // our own
)

// Formats lists what [Open] reads.
func Formats() []Format { return []Format{Mooncake, Weka, LMCache, Azure, Workload, Capture} }

// Options say how a trace is read. The zero value works.
type Options struct {
	Format Format
	// Keep Mooncake's ticks of 3 s as they are, ten requests at once; otherwise each tick is spread over the 3 s
	// behind it.
	Raw  bool
	Seed uint64 // of the spreading
}

// Reader gives the sessions of a file, one at a time. Memory is bounded by the longest line, except for
// [LMCache], whose sessions lie across the file.
type Reader struct {
	format Format
	lines  lines
	next   func() (*Session, error)
}

// Limits of plausible values. They only keep a broken file from using all memory.
const (
	maxLine   = 16 << 20
	maxTokens = 1 << 24
	maxCalls  = 1 << 20
	maxTime   = 400 * 24 * time.Hour
)

// Open reads a trace from r, gzip or not. name is for errors.
func Open(r io.Reader, name string, o Options) (*Reader, error) {
	in, err := unzip(r, name)
	if err != nil {
		return nil, err
	}
	t := &Reader{format: o.Format, lines: lines{in: in, name: name}}
	if t.format == Auto {
		if t.format, err = detect(in, name); err != nil {
			return nil, err
		}
	}
	switch t.format {
	case Mooncake:
		t.next = (&mooncake{lines: &t.lines, raw: o.Raw, rnd: rand.New(rand.NewPCG(o.Seed, 0x6d6f6f6e))}).session
	case Weka:
		t.next = (&weka{lines: &t.lines}).session
	case LMCache:
		t.next = (&lmcache{lines: &t.lines}).session
	case Azure:
		t.next = (&azure{lines: &t.lines}).session
	case Workload:
		t.next = (&workload{lines: &t.lines}).session
	case Capture:
		t.next = (&captureReader{lines: &t.lines}).session
	default:
		return nil, fmt.Errorf("%s: no format %q: one of %v", name, o.Format, Formats())
	}
	return t, nil
}

// Format is the format of the file.
func (t *Reader) Format() Format { return t.format }

// Next returns the next session, which is the caller's. The error is [io.EOF] at the end.
func (t *Reader) Next() (*Session, error) { return t.next() }

// All reads the rest.
func (t *Reader) All() ([]*Session, error) {
	var all []*Session
	for {
		s, err := t.Next()
		switch {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		}
		all = append(all, s)
	}
}

// unzip decompresses the file if it is gzip.
func unzip(r io.Reader, name string) (*bufio.Reader, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	magic, _ := in.Peek(2) // a file of one byte is no gzip
	if !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return in, nil
	}
	z, err := gzip.NewReader(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return bufio.NewReaderSize(z, 64<<10), nil
}

// detect looks for a word of the first line that only one format has.
func detect(in *bufio.Reader, name string) (Format, error) {
	start, err := in.Peek(4096)
	if len(start) == 0 {
		if err == nil || errors.Is(err, io.EOF) {
			err = errors.New("the file is empty")
		}
		return Auto, fmt.Errorf("%s: %w", name, err)
	}
	line, _, _ := bytes.Cut(start, []byte("\n"))
	for _, mark := range []struct {
		word string
		is   Format
	}{
		{captureMark, Capture},
		{`"reqs"`, Weka},
		{`"arrival_ns"`, Workload},
		{`"input_length"`, Mooncake},
		{`"g"`, LMCache},
		{"ContextTokens", Azure},
	} {
		if bytes.Contains(line, []byte(mark.word)) {
			return mark.is, nil
		}
	}
	if bytes.HasPrefix(line, []byte("client,")) {
		return Auto, fmt.Errorf("%s: holds arrival rates, no requests: give it as arrivals for another trace", name)
	}
	return Auto, fmt.Errorf("%s: no known format: say which of %v", name, Formats())
}

// lines gives the lines of a file and knows their numbers.
type lines struct {
	in   *bufio.Reader
	name string
	n    int
	long []byte
}

// next returns the next line that is not blank. It is valid until the next call.
func (l *lines) next() ([]byte, error) {
	for {
		line, err := l.read()
		if err != nil {
			return nil, err
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			return line, nil
		}
	}
}

func (l *lines) read() ([]byte, error) {
	l.long = l.long[:0]
	for {
		part, err := l.in.ReadSlice('\n')
		switch {
		case err == nil || errors.Is(err, io.EOF) && len(part)+len(l.long) > 0:
			l.n++
			if len(l.long) == 0 {
				return part, nil
			}
			l.long = append(l.long, part...)
			return l.long, nil
		case errors.Is(err, io.EOF):
			return nil, io.EOF
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, fmt.Errorf("%s:%d: %w", l.name, l.n+1, err)
		}
		if l.long = append(l.long, part...); len(l.long) > maxLine {
			return nil, fmt.Errorf("%s:%d: longer than %d bytes", l.name, l.n+1, maxLine)
		}
	}
}

// decode reads the next line's JSON object into v.
func (l *lines) decode(v any) error {
	line, err := l.next()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(line, v); err != nil {
		return l.wrong("", "%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// wrong is an error about a field of the present line.
func (l *lines) wrong(field, format string, args ...any) error {
	if field != "" {
		field += ": "
	}
	return fmt.Errorf("%s:%d: %s%s", l.name, l.n, field, fmt.Sprintf(format, args...))
}

// tokens checks a number of tokens. An answer of none counts as one: the engine gives one token at least.
func (l *lines) tokens(field string, n int, least int) (int, error) {
	if n < least || n > maxTokens {
		return 0, l.wrong(field, "%d is no number of tokens", n)
	}
	return max(n, 1), nil
}

// seconds checks a time.
func (l *lines) seconds(field string, s float64) (time.Duration, error) {
	if math.IsNaN(s) || s < 0 || s > maxTime.Seconds() {
		return 0, l.wrong(field, "%v s is no time of a trace", s)
	}
	return time.Duration(math.Round(s * 1e9)), nil
}

// fits checks that a prompt has as many identities as blocks, with or without a partial last one.
func (l *lines) fits(field string, input, ids, size int) error {
	if full := input / size; ids < full || ids > full+1 {
		return l.wrong(field, "%d blocks of %d tokens do not make %d tokens", ids, size, input)
	}
	return nil
}

// single is a session of one call.
func single(at time.Duration, size int, c Call) *Session {
	return &Session{At: at, Timed: true, BlockSize: size, Calls: []Call{c}}
}

// Single is a session of one call. ids are the identities of its prompt's blocks of size tokens.
func Single(at time.Duration, size, input, output int, ids []uint64) *Session {
	return single(at, size, Call{After: -1, Input: input, Output: output, parent: -1, ids: ids})
}

// shifted gives times since the first one, which must not go back.
type shifted struct {
	first, last time.Duration
	begun       bool
}

func (s *shifted) since(l *lines, field string, at time.Duration) (time.Duration, error) {
	if !s.begun {
		s.first = at
		s.last = at
		s.begun = true
	}
	if at < s.last {
		return 0, l.wrong(field, "goes back in time")
	}
	s.last = at
	return at - s.first, nil
}

// flat is a call without a parent and with a list of identities.
func flat(input, output int, ids []uint64) Call {
	return Call{After: -1, Input: input, Output: output, ids: slices.Clip(ids), parent: -1}
}
