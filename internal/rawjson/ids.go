package rawjson

import "math"

// NotAnID is the reason of the error for an element that is JSON and not a token id.
const NotAnID = "not a token id"

// IDs consumes an array of token ids, integers from 0 to 2^32-1 without sign, point or exponent, and appends them to dst.
func (s *Scanner) IDs(dst []uint32) []uint32 {
	if s.enter('['); s.err != nil {
		return dst
	}
	s.depth--
	if dst == nil {
		dst = make([]uint32, 0, (len(s.Data)-s.Pos)/5+8)
	}
	if s.Peek() == ']' {
		s.Pos++
		return dst
	}
	data, i := s.Data, s.Pos
	for {
		for i < len(data) && isSpace(data[i]) {
			i++
		}
		start, v := i, uint64(0)
		for i < len(data) {
			d := data[i] - '0'
			if d > 9 {
				break
			}
			v = v*10 + uint64(d)
			i++
		}
		if n := i - start; n == 0 || n > 10 || v > math.MaxUint32 || n > 1 && data[start] == '0' {
			s.Pos = start
			s.notAnID()
			return dst
		}
		dst = append(dst, uint32(v))
		for i < len(data) && isSpace(data[i]) {
			i++
		}
		if i < len(data) && data[i] == ',' {
			i++
			continue
		}
		s.Pos = i
		break
	}
	if s.Peek() != ']' {
		s.notAnID()
		return dst
	}
	s.Pos++
	return dst
}

func (s *Scanner) notAnID() {
	if s.Pos >= len(s.Data) {
		s.unexpected()
	}
	s.Fail(NotAnID)
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

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
