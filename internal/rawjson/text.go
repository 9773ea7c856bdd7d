package rawjson

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// Equal reports whether raw, a valid JSON string with its quotes, has the value s. Escapes do not matter.
func Equal(raw []byte, s string) bool {
	if len(raw) < 2 {
		return false
	}
	inner := raw[1 : len(raw)-1]
	if len(inner) == len(s) && string(inner) == s {
		return true
	}
	// An escape is longer than its value.
	return len(inner) > len(s) && bytes.IndexByte(inner, '\\') >= 0 && Text(raw) == s
}

// Name returns the value of raw. Without escapes, the result shares the memory of raw.
func Name(raw []byte) []byte {
	if len(raw) < 2 {
		return nil
	}
	if inner := raw[1 : len(raw)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return inner
	}
	return []byte(Text(raw))
}

// Text returns the value of raw, a valid JSON string with its quotes. Half of a surrogate pair becomes
// U+FFFD.
func Text(raw []byte) string {
	if len(raw) < 2 {
		return ""
	}
	in := raw[1 : len(raw)-1]
	i := bytes.IndexByte(in, '\\')
	if i < 0 {
		return string(in)
	}
	out := append(make([]byte, 0, len(in)), in[:i]...)
	for in = in[i:]; len(in) > 0; {
		if in[0] != '\\' {
			out, in = append(out, in[0]), in[1:]
			continue
		}
		out, in = unescape(out, in)
	}
	return string(out)
}

// Torn reports whether a string in raw, any valid JSON, has half of a surrogate pair. Such a string has no
// valid text.
func Torn(raw []byte) bool {
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 || i+1 >= len(raw) {
			return false
		}
		raw = raw[i:]
		if raw[1] != 'u' || len(raw) < 6 || !utf16.IsSurrogate(hex4(raw[2:6])) {
			raw = raw[2:]
			continue
		}
		low := rune(-1)
		if len(raw) >= 12 && raw[6] == '\\' && raw[7] == 'u' {
			low = hex4(raw[8:12])
		}
		if utf16.DecodeRune(hex4(raw[2:6]), low) == utf8.RuneError {
			return true
		}
		raw = raw[12:]
	}
}

// unescape appends the value of the escape at the start of in, and returns the rest.
func unescape(out, in []byte) (longer, rest []byte) {
	if len(in) < 2 {
		return out, nil
	}
	if in[1] != 'u' {
		return append(out, simpleEscape(in[1])), in[2:]
	}
	if len(in) < 6 {
		return out, nil
	}
	r := hex4(in[2:6])
	in = in[6:]
	if utf16.IsSurrogate(r) {
		low := rune(-1)
		if len(in) >= 6 && in[0] == '\\' && in[1] == 'u' {
			low = hex4(in[2:6])
		}
		if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
			in = in[6:]
		}
	}
	return utf8.AppendRune(out, r), in
}

func simpleEscape(c byte) byte {
	switch c {
	case '"', '\\', '/':
		return c
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return 0
}

// hex4 returns the value of four hexadecimal digits, or -1.
func hex4(b []byte) rune {
	r := rune(0)
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// AppendString appends s as a JSON string, escaped as engines escape. Bytes that are not UTF-8 become U+FFFD.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0 // bytes before start have been written
	for i := 0; i < len(s); {
		c, n := s[i], 1
		if c >= utf8.RuneSelf {
			var r rune
			if r, n = utf8.DecodeRuneInString(s[i:]); r == utf8.RuneError && n == 1 {
				dst = append(append(dst, s[start:i]...), "\ufffd"...)
				start = i + 1
			}
		} else if c < ' ' || c == '"' || c == '\\' {
			dst = appendEscape(append(dst, s[start:i]...), c)
			start = i + 1
		}
		i += n
	}
	return append(append(dst, s[start:]...), '"')
}

func appendEscape(dst []byte, c byte) []byte {
	const hex = "0123456789abcdef"
	switch {
	case c == '"' || c == '\\':
		return append(dst, '\\', c)
	case '\b' <= c && c <= '\r' && c != '\v':
		return append(dst, '\\', "btn-fr"[c-'\b'])
	}
	return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
}
