package engine

import (
	"bytes"
	"iter"
	"strings"
)

// Header is the fields of a response as they came. It stays valid after the response is closed.
type Header struct{ lines string }

// Get returns the value of the first field named key, in any case, or "". It does not allocate.
func (h Header) Get(key string) string {
	for k, v := range h.All() {
		if strings.EqualFold(k, key) {
			return v
		}
	}
	return ""
}

// All walks the fields in order.
func (h Header) All() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for rest := h.lines; rest != ""; {
			line, after, _ := strings.Cut(rest, "\r\n")
			key, value, _ := strings.Cut(line, ":")
			if !yield(key, trim(value)) {
				return
			}
			rest = after
		}
	}
}

// head is a response head as read from the wire.
type head struct {
	status  int
	oldHTTP bool // HTTP/1.0: the connection ends with the answer
	close   bool // Connection: close
	chunked bool
	length  int64 // of the body, -1 when no field says
	fields  Header
}

// parseHead reads b, which ends with the blank line. It refuses everything that two readers could understand
// differently: a body with two statements of its length, folded lines, bare line feeds, control characters,
// spaces before a colon.
func parseHead(b []byte) (head, error) {
	h := head{length: -1}
	line, rest, err := cutLine(b)
	if err != nil {
		return h, err
	}
	if err := h.readStatus(line); err != nil {
		return h, err
	}
	if err := h.readFields(rest); err != nil {
		return h, err
	}
	if h.chunked && (h.length >= 0 || h.oldHTTP) {
		return h, ProtocolError("transfer encoding beside a content length or under HTTP/1.0")
	}
	h.fields = Header{string(rest[:len(rest)-len("\r\n")])}
	return h, nil
}

func cutLine(b []byte) (line, rest []byte, err error) {
	end := bytes.IndexByte(b, '\n')
	if end < 1 || b[end-1] != '\r' {
		return nil, nil, errBareLF
	}
	return b[:end-1], b[end+1:], nil
}

// readStatus reads "HTTP/1.1 200 OK".
func (h *head) readStatus(line []byte) error {
	const shortest = len("HTTP/1.1 200")
	if len(line) < shortest || string(line[:7]) != "HTTP/1." || line[8] != ' ' ||
		line[7] != '0' && line[7] != '1' {
		return ProtocolError("it does not begin with HTTP/1.1 or HTTP/1.0 and a status")
	}
	for _, d := range line[9:12] {
		if d < '0' || d > '9' {
			return ProtocolError("status is not a number")
		}
		h.status = h.status*10 + int(d-'0')
	}
	if h.status < 100 || len(line) > shortest && line[shortest] != ' ' || !isFieldValue(line[shortest:]) {
		return ProtocolError("status line is not one")
	}
	h.oldHTTP = line[7] == '0'
	return nil
}

func (h *head) readFields(b []byte) error {
	for {
		line, rest, err := cutLine(b)
		if err != nil {
			return err
		}
		if len(line) == 0 {
			if len(rest) > 0 {
				return ProtocolError("head continues behind its blank line")
			}
			return nil
		}
		if err := h.readField(line); err != nil {
			return err
		}
		b = rest
	}
}

func (h *head) readField(line []byte) error {
	colon := bytes.IndexByte(line, ':')
	if colon < 1 || !isToken(line[:colon]) {
		return ProtocolError("header line has no name")
	}
	value := trim(line[colon+1:])
	if !isFieldValue(value) {
		return ProtocolError("header value has a control character")
	}
	switch key := line[:colon]; {
	case equalFold(key, "content-length"):
		return h.readLength(value)
	case equalFold(key, "transfer-encoding"):
		return h.readEncoding(value)
	case equalFold(key, "content-encoding"):
		return h.readCoding(value)
	case equalFold(key, "connection"):
		h.close = h.close || lists(value, "close")
	}
	return nil
}

func (h *head) readLength(value []byte) error {
	const longest = 18 // digits that an int64 holds for certain
	if len(value) == 0 || len(value) > longest {
		return ProtocolError("content length is not a number")
	}
	var n int64
	for _, d := range value {
		if d < '0' || d > '9' {
			return ProtocolError("content length is not a number")
		}
		n = n*10 + int64(d-'0')
	}
	if h.length >= 0 && h.length != n {
		return ProtocolError("content lengths contradict each other")
	}
	h.length = n
	return nil
}

func (h *head) readEncoding(value []byte) error {
	if h.chunked || !equalFold(value, "chunked") {
		return ProtocolError("transfer encoding is not chunked, once")
	}
	h.chunked = true
	return nil
}

// readCoding refuses compressed bodies: the request does not allow them, and the router cannot find events
// in them.
func (h *head) readCoding(value []byte) error {
	if len(value) > 0 && !equalFold(value, "identity") {
		return ProtocolError("it is encoded (content-encoding), which was not asked for: let what stands in " +
			"front of the engine pass answers as they are")
	}
	return nil
}

// lists reports whether the comma-separated value has the token, which is lower case.
func lists(value []byte, token string) bool {
	for item := range bytes.SplitSeq(value, []byte{','}) {
		if equalFold(trim(item), token) {
			return true
		}
	}
	return false
}

// bodyless reports whether answers of this status to this method have no body, even if header fields say
// otherwise.
func bodyless(method string, status int) bool {
	return method == "HEAD" || status == 204 || status == 304
}
