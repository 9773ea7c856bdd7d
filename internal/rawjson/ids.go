package rawjson

import (
	"bytes"
	"math"
	"strconv"
)

// NotAnID is the reason of the error for a JSON element that is not a token id.
const NotAnID = "not a token id"

// IDs consumes an array of token ids, integers from 0 to 2^32-1 without sign, point or exponent, and appends
// them to dst.
func (s *Scanner) IDs(dst []uint32) []uint32 {
	if s.enter('['); s.err != nil {
		return dst
	}
	s.depth--
	if dst == nil {
		dst = make([]uint32, 0, s.commas()+1)
	}
	if s.Peek() == ']' {
		s.Pos++
		return dst
	}
	for s.err == nil {
		var closed bool
		if dst, closed = s.plainIDs(dst); closed {
			break
		}
		if dst, closed = s.oneID(dst); closed {
			break
		}
	}
	return dst
}

// commas counts the commas up to the next closing bracket, at most as many as ids can have. The count
// determines the allocated memory.
func (s *Scanner) commas() int {
	rest := s.Data[s.Pos:]
	if end := bytes.IndexByte(rest, ']'); end >= 0 {
		rest = rest[:end]
	}
	return min(bytes.Count(rest, []byte{','}), len(rest)/2)
}

// plainIDs reads ids of up to nine digits without spaces, as serializers write them, and stops before
// anything else. closed says that the list has ended.
func (s *Scanner) plainIDs(dst []uint32) (ids []uint32, closed bool) {
	data, i := s.Data, s.Pos
	for {
		start, v := i, uint32(0)
		for i < len(data) && data[i]-'0' <= 9 {
			v = v*10 + uint32(data[i]-'0')
			i++
		}
		if n := i - start; n == 0 || n > 9 || i == len(data) || data[start] == '0' && n > 1 {
			s.Pos = start
			return dst, false
		}
		switch data[i] {
		case ',':
			dst = append(dst, v)
			if i++; i < len(data) && data[i] == ' ' {
				i++
			}
		case ']':
			s.Pos = i + 1
			return append(dst, v), true
		default:
			s.Pos = start
			return dst, false
		}
	}
}

// oneID reads any id and the character after it.
func (s *Scanner) oneID(dst []uint32) (ids []uint32, closed bool) {
	s.Peek()
	start, v := s.Pos, uint64(0)
	for s.Pos < len(s.Data) && s.Data[s.Pos]-'0' <= 9 {
		v = v*10 + uint64(s.Data[s.Pos]-'0')
		s.Pos++
	}
	if n := s.Pos - start; n == 0 || n > 10 || v > math.MaxUint32 || n > 1 && s.Data[start] == '0' {
		s.Pos = start
		s.notAnID()
		return dst, false
	}
	c := s.Peek()
	if c != ',' && c != ']' {
		s.notAnID()
		return dst, false
	}
	s.Pos++
	return append(dst, uint32(v)), c == ']'
}

// WholeIDs is [Scanner.IDs], but accepts whole numbers in the forms 1.0, 1e1 or -0. pydantic, and therefore
// vLLM, reads such numbers as integers. It is slower than IDs.
func (s *Scanner) WholeIDs(dst []uint32) []uint32 {
	for range s.Elements() {
		if c := s.Peek(); c != '-' && (c < '0' || c > '9') {
			s.notAnID()
			return dst
		}
		f, err := strconv.ParseFloat(string(s.Value()), 64)
		if s.err == nil && (err != nil || f != math.Trunc(f) || f < 0 || f > math.MaxUint32) {
			s.notAnID()
		}
		if s.err != nil {
			return dst
		}
		dst = append(dst, uint32(f))
	}
	return dst
}

func (s *Scanner) notAnID() {
	if s.Pos >= len(s.Data) {
		s.unexpected()
	}
	s.Fail(NotAnID)
}

// AppendIDs appends ids as a JSON array.
func AppendIDs(dst []byte, ids []uint32) []byte {
	dst = append(dst, '[')
	for i, id := range ids {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendUint(dst, id)
	}
	return append(dst, ']')
}

func appendUint(dst []byte, v uint32) []byte {
	var buf [10]byte
	i := len(buf)
	for {
		i--
		buf[i] = byte('0' + v%10)
		if v /= 10; v == 0 {
			return append(dst, buf[i:]...)
		}
	}
}
