package enginesim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// scanner walks JSON without building values: a benchmark's requests are mostly token ids, and encoding/json would cost more than the engine.
// The first mistake sticks in err and every later call returns a zero.
type scanner struct {
	b   []byte
	i   int
	err error
}

var errJSON = errors.New("JSON decode error")

const maxDepth = 256

func (s *scanner) fail() {
	if s.err == nil {
		s.err = fmt.Errorf("%w at byte %d", errJSON, s.i)
	}
}

// peek skips white space and returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case ' ', '\n', '\t', '\r':
			s.i++
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) take(c byte) bool {
	if s.err != nil || s.peek() != c {
		return false
	}
	s.i++
	return true
}

func (s *scanner) want(c byte) {
	if !s.take(c) {
		s.fail()
	}
}

// object calls field for each key, which must consume the value. The key is valid during the call only.
func (s *scanner) object(field func(key []byte)) {
	s.want('{')
	if s.take('}') {
		return
	}
	for s.err == nil {
		key := s.str()
		s.want(':')
		if s.err != nil {
			return
		}
		field(key)
		if s.take(',') {
			continue
		}
		s.want('}')
		return
	}
}

// array calls element before each value, which must consume it.
func (s *scanner) array(element func()) {
	s.want('[')
	if s.take(']') {
		return
	}
	for s.err == nil {
		element()
		if s.take(',') {
			continue
		}
		s.want(']')
		return
	}
}

// str reads a string. The result lies in the input when nothing is escaped.
func (s *scanner) str() []byte {
	s.want('"')
	if s.err != nil {
		return nil
	}
	start := s.i
	for s.i < len(s.b) {
		switch c := s.b[s.i]; {
		case c == '"':
			s.i++
			return s.b[start : s.i-1]
		case c == '\\':
			return s.escaped(start)
		case c < ' ':
			s.fail()
			return nil
		}
		s.i++
	}
	s.fail()
	return nil
}

// escaped finishes a string that has a backslash, with encoding/json's rules.
func (s *scanner) escaped(start int) []byte {
	for s.i < len(s.b) && s.b[s.i] != '"' {
		if s.b[s.i] == '\\' {
			s.i++
		}
		s.i++
	}
	if s.i >= len(s.b) {
		s.i = len(s.b)
		s.fail()
		return nil
	}
	s.i++
	var out string
	if json.Unmarshal(s.b[start-1:s.i], &out) != nil {
		s.fail()
	}
	return []byte(out)
}

// null consumes a null if one is next.
func (s *scanner) null() bool {
	if s.peek() != 'n' {
		return false
	}
	s.word("null")
	return s.err == nil
}

func (s *scanner) word(w string) {
	if !bytes.HasPrefix(s.b[s.i:], []byte(w)) {
		s.fail()
		return
	}
	s.i += len(w)
}

func (s *scanner) boolean() bool {
	switch s.peek() {
	case 't':
		s.word("true")
		return s.err == nil
	case 'f':
		s.word("false")
	case 'n':
		s.word("null")
	default:
		s.fail()
	}
	return false
}

// raw consumes any value and returns its bytes.
func (s *scanner) raw() []byte {
	s.peek()
	start := s.i
	s.skip(0)
	return s.b[start:s.i]
}

func (s *scanner) skip(depth int) {
	if depth > maxDepth {
		s.fail()
	}
	if s.err != nil {
		return
	}
	switch c := s.peek(); {
	case c == '{':
		s.object(func([]byte) { s.skip(depth + 1) })
	case c == '[':
		s.array(func() { s.skip(depth + 1) })
	case c == '"':
		s.str()
	case c == 't', c == 'f', c == 'n':
		s.boolean()
	default:
		s.number()
	}
}

// number reads a number; null is NaN.
func (s *scanner) number() float64 {
	if s.null() || s.err != nil {
		return math.NaN()
	}
	start := s.i
	for s.i < len(s.b) && isNumber(s.b[s.i]) {
		s.i++
	}
	f, err := strconv.ParseFloat(string(s.b[start:s.i]), 64)
	if err != nil || start == s.i {
		s.fail()
	}
	return f
}

func isNumber(c byte) bool {
	return c >= '0' && c <= '9' || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E'
}

// integer reads a whole number; null is none.
func (s *scanner) integer(none int) int {
	if s.null() || s.err != nil {
		return none
	}
	start := s.i
	negative := s.i < len(s.b) && s.b[s.i] == '-'
	if negative {
		s.i++
	}
	n, digits := 0, s.i
	for s.i < len(s.b) && s.b[s.i]-'0' < 10 && s.i-digits < 18 {
		n = n*10 + int(s.b[s.i]-'0')
		s.i++
	}
	if s.i == digits || s.i < len(s.b) && isNumber(s.b[s.i]) {
		s.i = start
		return s.roundNumber()
	}
	if negative {
		return -n
	}
	return n
}

// roundNumber accepts 5.0 and 5e0 where a whole number is wanted, as pydantic does.
func (s *scanner) roundNumber() int {
	f := s.number()
	if s.err == nil && (f != math.Trunc(f) || math.Abs(f) > 1<<53) {
		s.fail()
	}
	if s.err != nil {
		return 0
	}
	return int(f)
}

// ids appends a list of token ids to dst. A negative id or one above 32 bits is kept as the largest: it is out of every vocabulary.
func (s *scanner) ids(dst []uint32) []uint32 {
	s.want('[')
	if s.err != nil || s.take(']') {
		return dst
	}
	for s.err == nil {
		if dst = s.plainIDs(dst); s.b[s.i-1] == ']' {
			break
		}
		dst = append(dst, clampID(s.integer(-1)))
		if !s.take(',') {
			s.want(']')
			break
		}
	}
	return dst
}

// plainIDs reads numbers of up to nine digits with a comma and at most one space behind each, until something else comes or the list ends.
// It stops in front of a number, behind a comma, or behind the closing bracket.
func (s *scanner) plainIDs(dst []uint32) []uint32 {
	b, i := s.b, s.i
	for {
		start, n := i, uint32(0)
		for i < len(b) && b[i]-'0' < 10 {
			n = n*10 + uint32(b[i]-'0')
			i++
		}
		if i == start || i-start > 9 || i == len(b) {
			s.i = start
			return dst
		}
		switch b[i] {
		case ',':
			i++
			if i < len(b) && b[i] == ' ' {
				i++
			}
			dst = append(dst, n)
		case ']':
			s.i = i + 1
			return append(dst, n)
		default:
			s.i = start
			return dst
		}
	}
}

func clampID(n int) uint32 {
	if n < 0 || n > math.MaxUint32 {
		return math.MaxUint32
	}
	return uint32(n)
}

// end fails when something follows the value.
func (s *scanner) end() error {
	if s.err == nil && s.peek() != 0 {
		s.fail()
	}
	return s.err
}

const hexDigits = "0123456789abcdef"

// appendText appends text as a JSON string the way Python's json.dumps(ensure_ascii=False) does.
func appendText(dst []byte, text string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(text); {
		c := text[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(text[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(append(dst, text[start:i]...), "\ufffd"...)
				start = i + 1
			}
			i += n
			continue
		}
		dst = append(dst, text[start:i]...)
		dst = appendEscape(dst, c)
		i++
		start = i
	}
	return append(append(dst, text[start:]...), '"')
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}

func appendInt(dst []byte, n int) []byte { return strconv.AppendInt(dst, int64(n), 10) }

// appendFloat writes f as Python does: 0.0 keeps its point.
func appendFloat(dst []byte, f float64) []byte {
	at := len(dst)
	dst = strconv.AppendFloat(dst, f, 'g', -1, 64)
	if !bytes.ContainsAny(dst[at:], ".eIN") {
		dst = append(dst, ".0"...)
	}
	return dst
}

// appendIDs writes a list of token ids.
func appendIDs(dst []byte, ids []uint32) []byte {
	dst = append(dst, '[')
	for i, id := range ids {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(id), 10)
	}
	return append(dst, ']')
}
