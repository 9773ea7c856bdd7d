package engine

// class holds what a byte may be part of: RFC 9110's token, visible ASCII, and a field value.
var class = func() (t [256]uint8) {
	for b := range t {
		c := byte(b)
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		digit := '0' <= c && c <= '9'
		if letter || digit {
			t[b] |= inToken
		}
		if c > ' ' && c < 0x7f {
			t[b] |= inVisible
		}
		if c >= ' ' && c != 0x7f || c == '\t' {
			t[b] |= inValue
		}
	}
	for _, c := range []byte("!#$%&'*+-.^_`|~") {
		t[c] |= inToken
	}
	return t
}()

const (
	inToken uint8 = 1 << iota
	inVisible
	inValue
)

func consists[T string | []byte](s T, of uint8) bool {
	for i := range len(s) {
		if class[s[i]]&of == 0 {
			return false
		}
	}
	return true
}

func isToken[T string | []byte](s T) bool      { return len(s) > 0 && consists(s, inToken) }
func isVisible[T string | []byte](s T) bool    { return consists(s, inVisible) }
func isFieldValue[T string | []byte](s T) bool { return consists(s, inValue) }

// equalFold compares s with lower, which is lower case already.
func equalFold[T string | []byte](s T, lower string) bool {
	if len(s) != len(lower) {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// trim takes spaces and tabs from both ends.
func trim[T string | []byte](s T) T {
	for len(s) > 0 && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for len(s) > 0 && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}
