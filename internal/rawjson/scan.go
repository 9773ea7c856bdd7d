// Package rawjson walks JSON text without decoding it. Callers learn where values are, and read only the
// values that they need.
//
// A [Scanner] checks the text against RFC 8259. It does not check UTF-8: the caller does this, because
// [unicode/utf8.Valid] on the whole text is faster. Errors have a position and a reason, and never quote the
// text.
package rawjson

import (
	"encoding/binary"
	"iter"
	"strconv"
)

// Depth is the default limit for nested arrays and objects.
const Depth = 128

// SyntaxError says where the text is not JSON.
type SyntaxError struct {
	Offset int
	Reason string
}

func (e *SyntaxError) Error() string {
	return "invalid JSON at byte " + strconv.Itoa(e.Offset) + ": " + e.Reason
}

// Scanner walks a text. After the first error every method does nothing; check Err once at the end. The zero
// value with Data set is ready.
type Scanner struct {
	Data  []byte
	Pos   int // position of the next byte
	Max   int // limit of nesting; default Depth
	depth int
	err   *SyntaxError
}

// Err returns the first error, a *SyntaxError, or nil.
func (s *Scanner) Err() error {
	if s.err == nil {
		return nil
	}
	return s.err
}

// Fail ends the scan with reason at the current position.
func (s *Scanner) Fail(reason string) {
	if s.err == nil {
		s.err = &SyntaxError{s.Pos, reason}
	}
}

// Peek skips white space and returns the next byte, 0 at the end or after an error.
func (s *Scanner) Peek() byte {
	if s.err != nil {
		return 0
	}
	for s.Pos < len(s.Data) {
		switch c := s.Data[s.Pos]; c {
		case ' ', '\t', '\n', '\r':
			s.Pos++
		default:
			return c
		}
	}
	return 0
}

// End requires that only white space remains.
func (s *Scanner) End() {
	if s.Peek(); s.Pos < len(s.Data) {
		s.Fail("text after the value")
	}
}

// Members enters an object and yields the raw name of each member, with its quotes. The loop's body must
// consume the value. KeyAt returns the position of the name. After a break the Scanner stays at its position.
func (s *Scanner) Members() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		s.enter('{')
		for first := true; s.more('}', first); first = false {
			if key := s.key(); s.err != nil || !yield(key) {
				return
			}
		}
	}
}

// Elements enters an array and yields the number of each element; the loop's body must consume it.
func (s *Scanner) Elements() iter.Seq[int] {
	return func(yield func(int) bool) {
		s.enter('[')
		for i := 0; s.more(']', i == 0); i++ {
			if s.err != nil || !yield(i) {
				return
			}
		}
	}
}

func (s *Scanner) enter(open byte) {
	switch c := s.Peek(); {
	case s.err != nil:
	case c != open:
		s.unexpected()
	case s.depth >= s.max():
		s.Fail("nested too deep")
	default:
		s.depth++
		s.Pos++
	}
}

func (s *Scanner) max() int {
	if s.Max > 0 {
		return s.Max
	}
	return Depth
}

// more moves to the next member or element, or past the closing byte and returns false.
func (s *Scanner) more(closing byte, first bool) bool {
	switch c := s.Peek(); {
	case s.err != nil:
		return false
	case c == closing:
		s.depth--
		s.Pos++
		return false
	case first:
		return true
	case c == ',':
		s.Pos++
		return true
	}
	s.unexpected()
	return false
}

func (s *Scanner) key() []byte {
	if s.Peek() != '"' {
		s.unexpected()
		return nil
	}
	key := s.String()
	if s.Peek() != ':' {
		s.unexpected()
		return nil
	}
	s.Pos++
	return key
}

// KeyAt returns where in Data the name given by Members begins.
func (s *Scanner) KeyAt(key []byte) int { return cap(s.Data) - cap(key) }

func (s *Scanner) unexpected() {
	switch {
	case s.err != nil:
	case s.Pos >= len(s.Data):
		s.Fail("unexpected end")
	default:
		s.Fail("unexpected character")
	}
}

// Value consumes one value and returns its bytes, without white space around it.
func (s *Scanner) Value() []byte {
	s.Peek()
	start := s.Pos
	if s.Skip(); s.err != nil {
		return nil
	}
	return s.Data[start:s.Pos]
}

// Skip consumes one value.
func (s *Scanner) Skip() {
	switch c := s.Peek(); c {
	case '"':
		s.String()
	case '{':
		s.enter('{')
		for first := true; s.more('}', first); first = false {
			s.key()
			s.Skip()
		}
	case '[':
		s.enter('[')
		s.plainNumbers()
		for first := true; s.more(']', first); first = false {
			s.Skip()
		}
	case 't':
		s.literal("true")
	case 'f':
		s.literal("false")
	case 'n':
		s.literal("null")
	default:
		if c == '-' || '0' <= c && c <= '9' {
			s.number()
		} else {
			s.unexpected()
		}
	}
}

// plainNumbers skips whole numbers at the beginning of a list, as in lists of token ids and block ids. It
// skips a number only if another number follows. So the scanner stops before a number.
func (s *Scanner) plainNumbers() {
	if s.err != nil {
		return
	}
	data, i := s.Data, s.Pos
	for {
		start := i
		for i < len(data) && data[i]-'0' <= 9 {
			i++
		}
		if i == start {
			return
		}
		if s.Pos = start; i == len(data) || data[i] != ',' || data[start] == '0' && i-start > 1 {
			return
		}
		if i++; i < len(data) && data[i] == ' ' {
			i++
		}
	}
}

func (s *Scanner) literal(want string) {
	if end := s.Pos + len(want); end > len(s.Data) || string(s.Data[s.Pos:end]) != want {
		s.unexpected()
		return
	}
	s.Pos += len(want)
}

func (s *Scanner) number() {
	if s.Data[s.Pos] == '-' {
		s.Pos++
	}
	leading := s.Pos
	if s.digits(); s.Pos-leading > 1 && s.Data[leading] == '0' {
		s.Pos = leading
		s.Fail("number with a leading zero")
		return
	}
	if s.at('.') {
		s.Pos++
		s.digits()
	}
	if s.at('e') || s.at('E') {
		if s.Pos++; s.at('+') || s.at('-') {
			s.Pos++
		}
		s.digits()
	}
}

func (s *Scanner) at(c byte) bool { return s.err == nil && s.Pos < len(s.Data) && s.Data[s.Pos] == c }

// digits consumes at least one digit.
func (s *Scanner) digits() {
	if s.err != nil {
		return
	}
	start := s.Pos
	for s.Pos < len(s.Data) && s.Data[s.Pos]-'0' <= 9 {
		s.Pos++
	}
	if s.Pos == start {
		s.unexpected()
	}
}

// String consumes a string and returns it raw, with its quotes.
func (s *Scanner) String() []byte {
	if s.Peek() != '"' {
		s.unexpected()
		return nil
	}
	start := s.Pos
	for s.Pos++; s.err == nil; {
		s.Pos += plain(s.Data[s.Pos:])
		if s.Pos >= len(s.Data) {
			s.Fail("string without an end")
			break
		}
		switch c := s.Data[s.Pos]; {
		case c == '"':
			s.Pos++
			return s.Data[start:s.Pos]
		case c == '\\':
			s.escape()
		default:
			s.Fail("control character in a string")
		}
	}
	return nil
}

// plain returns how many bytes at the start of b are neither quote, backslash nor control character. It
// checks eight bytes at a time.
func plain(b []byte) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(b); i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		quote, slash := w^(ones*'"'), w^(ones*'\\')
		// A byte is below 0x20, or equal to one of the two, if the subtraction borrows into its top bit. Bytes of
		// 0x80 and above never count.
		if ((w-ones*0x20)|(quote-ones)|(slash-ones))&^w&tops != 0 {
			break
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c == '"' || c == '\\' || c < 0x20 {
			break
		}
	}
	return i
}

func (s *Scanner) escape() {
	rest := s.Data[s.Pos:]
	switch {
	case len(rest) < 2:
		s.Fail("string without an end")
	case rest[1] == 'u' && len(rest) >= 6 && hex4(rest[2:6]) >= 0:
		s.Pos += 6
	case simpleEscape(rest[1]) != 0:
		s.Pos += 2
	default:
		s.Fail("invalid escape in a string")
	}
}
