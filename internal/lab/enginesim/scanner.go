package enginesim

import (
	"math"
	"strconv"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// scanner reads a client's JSON as pydantic takes it: rawjson walks the text, these methods know the types.
// It builds no values, since a benchmark's requests are mostly token ids. The first mistake sticks, and every
// later call returns a zero.
type scanner struct{ rawjson.Scanner }

const maxDepth = 256

func scan(text []byte) *scanner {
	return &scanner{rawjson.Scanner{Data: text, Max: maxDepth}}
}

// badType is the reason for a value that is JSON, and not of the type that is wanted.
const badType = "value of a wrong type"

// object calls field for each key, which must consume the value. The key is valid during the call only.
func (s *scanner) object(field func(key []byte)) {
	for key := range s.Members() {
		field(rawjson.Name(key))
	}
}

// array calls element before each value, which must consume it.
func (s *scanner) array(element func()) {
	for range s.Elements() {
		element()
	}
}

// str reads a string. The result lies in the input when nothing is escaped.
func (s *scanner) str() []byte { return rawjson.Name(s.String()) }

// null consumes a null if one is next.
func (s *scanner) null() bool {
	if s.Peek() != 'n' {
		return false
	}
	s.Skip()
	return s.Err() == nil
}

// boolean reads true, false or, for false, null.
func (s *scanner) boolean() bool {
	switch c := s.Peek(); c {
	case 't', 'f', 'n':
		s.Skip()
		return c == 't' && s.Err() == nil
	}
	s.Fail(badType)
	return false
}

// digits consumes a number and returns its text, nil when something else comes.
func (s *scanner) digits() []byte {
	if c := s.Peek(); c != '-' && (c < '0' || c > '9') {
		s.Fail(badType)
	}
	return s.Value()
}

// number reads a number; null is NaN.
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

// integer reads a whole number; null is none. It accepts 5.0 and 5e0, as pydantic does.
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

// ids appends a list of token ids to dst. A negative id or one above 32 bits is kept as the largest: it is
// out of every vocabulary.
func (s *scanner) ids(dst []uint32) []uint32 {
	if dst == nil {
		dst = []uint32{} // which rawjson does not size by the rest of the text
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

// end fails when something follows the value.
func (s *scanner) end() error {
	s.End()
	return s.Err()
}
