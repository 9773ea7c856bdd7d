package enginesim

import (
	"math"
	"strconv"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// scanner reads a client's JSON by pydantic's rules: rawjson walks the text, and these methods check the
// types. It builds no values, since a benchmark's requests are mostly token ids. After the first error, every
// call returns a zero.
type scanner struct{ rawjson.Scanner }

const maxDepth = 256

func scan(text []byte) *scanner {
	return &scanner{rawjson.Scanner{Data: text, Max: maxDepth}}
}

// badType is the reason for valid JSON of the wrong type.
const badType = "value of a wrong type"

// object calls field for each key. field must consume the value. The key is valid only during the call.
func (s *scanner) object(field func(key []byte)) {
	for key := range s.Members() {
		field(rawjson.Name(key))
	}
}

// array calls element before each value. element must consume the value.
func (s *scanner) array(element func()) {
	for range s.Elements() {
		element()
	}
}

// str reads a string. Without escapes, the result is a part of the input.
func (s *scanner) str() []byte { return rawjson.Name(s.String()) }

// null consumes the next value if it is null.
func (s *scanner) null() bool {
	if s.Peek() != 'n' {
		return false
	}
	s.Skip()
	return s.Err() == nil
}

// boolean reads true, false or null, which counts as false.
func (s *scanner) boolean() bool {
	switch c := s.Peek(); c {
	case 't', 'f', 'n':
		s.Skip()
		return c == 't' && s.Err() == nil
	}
	s.Fail(badType)
	return false
}

// digits consumes a number and returns its text. It returns nil for any other value.
func (s *scanner) digits() []byte {
	if c := s.Peek(); c != '-' && (c < '0' || c > '9') {
		s.Fail(badType)
	}
	return s.Value()
}

// number reads a number. null gives NaN.
func (s *scanner) number() float64 {
	if s.null() {
		return math.NaN()
	}
	f, err := strconv.ParseFloat(string(s.digits()), 64)
	if err != nil {
		s.Fail(badType)
		return math.NaN()
	}
	return f
}

// integer reads a whole number. null gives none. 5.0 and 5e0 are accepted, as in pydantic.
func (s *scanner) integer(none int) int {
	if s.null() {
		return none
	}
	text := s.digits()
	if n, err := strconv.Atoi(string(text)); err == nil {
		return n
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		s.Fail(badType)
		return 0
	}
	return int(f)
}

// ids appends a list of token ids to dst. Negative ids and ids above 32 bits become the largest id: no
// vocabulary has it.
func (s *scanner) ids(dst []uint32) []uint32 {
	if dst == nil {
		dst = []uint32{} // rawjson sizes a nil slice by the rest of the text
	}
	plain := s.Scanner
	if ids := plain.IDs(dst); plain.Err() == nil {
		s.Scanner = plain
		return ids
	}
	s.array(func() { dst = append(dst, clampID(s.integer(-1))) })
	return dst
}

func clampID(n int) uint32 {
	if n < 0 || n > math.MaxUint32 {
		return math.MaxUint32
	}
	return uint32(n)
}

// end fails if something follows the value.
func (s *scanner) end() error {
	s.End()
	return s.Err()
}
