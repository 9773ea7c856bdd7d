package engine

import (
	"bytes"
	"math"
	"strconv"
)

// number reads a label that is a whole number; "None" and the like are 0.
func number(b []byte) int {
	n, err := strconv.Atoi(string(b))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// readSample reads the text behind a series' name. A value that is not finite counts as missing.
func readSample(b []byte) (s sample, ok bool) {
	if len(b) > 0 && b[0] == '{' {
		end := labelsEnd(b)
		if end < 0 {
			return s, false
		}
		s.labels, b = labels(b[1:end]), b[end+1:]
	}
	b = trim(b)
	if end := bytes.IndexAny(b, " \t\r"); end >= 0 {
		b = b[:end] // a timestamp may follow
	}
	v, err := strconv.ParseFloat(string(b), 64)
	s.value = v
	return s, err == nil && !math.IsNaN(v) && !math.IsInf(v, 0)
}

// labelsEnd finds the closing brace: one outside of quotes.
func labelsEnd(b []byte) int {
	quoted := false
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			quoted = !quoted
		case '}':
			if !quoted {
				return i
			}
		}
	}
	return -1
}

// labels is the text between the braces: key="value",key="value".
type labels []byte

// all walks the labels in order. Values are as written, escapes included.
func (l labels) all(yield func(key, value []byte) bool) {
	for rest := []byte(l); ; {
		key, after, ok := bytes.Cut(rest, []byte(`="`))
		if !ok {
			return
		}
		end := quoteEnd(after)
		if end < 0 || !yield(trim(bytes.TrimLeft(key, ", ")), after[:end]) {
			return
		}
		rest = after[end+1:]
	}
}

func quoteEnd(b []byte) int {
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
}

func (l labels) get(key string) []byte {
	for k, v := range l.all {
		if string(k) == key {
			return v
		}
	}
	return nil
}

// rank reads the engine label. A series without one, from before data parallelism, belongs to rank 0.
func (l labels) rank() (int, bool) {
	v := l.get("engine")
	if v == nil {
		return 0, true
	}
	n, err := strconv.Atoi(string(v))
	return n, err == nil && n >= 0 && n < maxRanks
}

// maxRanks bounds what a server can make us remember.
const maxRanks = 1 << 12
