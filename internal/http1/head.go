package http1

import (
	"bytes"
	"net/http"
	"net/textproto"
	"strings"
)

// head is a usual request's head.
type head struct {
	path   string
	host   string
	header http.Header // without Host, as in net/http
	length int64       // of the body
	last   bool        // Connection: close
}

// longestBody is the largest body of a usual request.
const longestBody = 1 << 20

var post = []byte("POST ")

// endOfHead returns the length of the head at the front of b, 0 if it is not complete. not says that this
// can be no usual request, however it continues.
func endOfHead(b []byte) (n int, not bool) {
	if k := min(len(b), len(post)); !bytes.Equal(b[:k], post[:k]) {
		return 0, true
	}
	if end := bytes.Index(b, []byte("\r\n\r\n")); end >= 0 {
		return end + len("\r\n\r\n"), false
	}
	for i, ch := range b { // lines that end in LF alone never end a head here
		if ch == '\n' && b[i-1] != '\r' {
			return 0, true
		}
	}
	return 0, false
}

// parse reads a head that ends with its blank line; ok says that it is usual. Everything that is not,
// right or wrong, is for net/http to judge.
//
// Long: one pass over the lines of a head; their values share one piece of memory.
func parse(b []byte, usual map[string]string) (h head, ok bool) {
	first := bytes.Index(b, []byte("\r\n"))
	target, ok := bytes.CutSuffix(b[len(post):first], []byte(" HTTP/1.1"))
	if !ok {
		return h, false
	}
	if h.path, ok = usual[string(target)]; !ok {
		return h, false
	}
	h.length = -1
	lines := string(b[first+2 : len(b)-2])
	n := strings.Count(lines, "\n")
	h.header = make(http.Header, n)
	values := make([]string, 0, n)
	for lines != "" {
		line, rest, _ := strings.Cut(lines, "\r\n")
		lines = rest
		key, value, found := strings.Cut(line, ":")
		value = strings.Trim(value, " \t")
		if !found || !isToken(key) || !isFieldValue(value) {
			return h, false
		}
		key = textproto.CanonicalMIMEHeaderKey(key)
		if key == "Host" {
			if h.host != "" || !isHost(value) {
				return h, false
			}
			h.host = value
			continue
		}
		if !h.note(key, value) {
			return h, false
		}
		if before, again := h.header[key]; again {
			h.header[key] = append(before, value)
			continue
		}
		values = append(values, value)
		h.header[key] = values[len(values)-1 : len(values) : len(values)]
	}
	return h, h.host != "" && h.length >= 0
}

// note reads the fields that decide how a request is read; false: it is not usual.
func (h *head) note(key, value string) bool {
	switch key {
	case "Content-Length":
		if h.length >= 0 {
			return false
		}
		h.length = length(value)
		return h.length >= 0
	case "Connection":
		h.last = h.last || strings.EqualFold(value, "close")
		return h.last || strings.EqualFold(value, "keep-alive")
	case "Transfer-Encoding", "Expect", "Upgrade", "Trailer", "Te":
		return false
	case "Pragma": // net/http turns no-cache into Cache-Control (RFC 9111, section 5.4)
		return false
	}
	return true
}

// length reads a Content-Length, -1 where it is no number, or is more than a usual request has.
func length(value string) int64 {
	const digits = 7
	if value == "" || len(value) > digits {
		return -1
	}
	var n int64
	for _, d := range []byte(value) {
		if d < '0' || d > '9' {
			return -1
		}
		n = n*10 + int64(d-'0')
	}
	if n > longestBody {
		return -1
	}
	return n
}

func isToken(s string) bool {
	for i := range len(s) {
		if class[s[i]]&inToken == 0 {
			return false
		}
	}
	return s != ""
}

func isFieldValue(s string) bool {
	for i := range len(s) {
		if class[s[i]]&inValue == 0 {
			return false
		}
	}
	return true
}

func isHost(s string) bool {
	for i := range len(s) {
		if class[s[i]]&inHost == 0 {
			return false
		}
	}
	return s != ""
}

const (
	inToken = 1 << iota // RFC 9110 token
	inValue             // characters of a field: visible ASCII, space and tab; other characters are not usual
	inHost
)

// class is the kinds that a byte belongs to.
var class = func() (c [256]uint8) {
	for b := range 0x7f {
		if b >= ' ' || b == '\t' {
			c[b] |= inValue
		}
		letter := b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9'
		if letter || strings.IndexByte("!#$%&'*+-.^_`|~", byte(b)) >= 0 {
			c[b] |= inToken
		}
		if letter || strings.IndexByte("-._:[]", byte(b)) >= 0 {
			c[b] |= inHost
		}
	}
	return c
}()
