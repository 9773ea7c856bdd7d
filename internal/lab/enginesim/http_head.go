package enginesim

import (
	"bytes"
	"strconv"
)

// header holds the fields that the server uses.
type header struct {
	requestID, orca, rank, session, priority, key string
	length                                        int // -1: none
	chunked, close, expect, old                   bool
}

func (c *conn) readHead(k *call) error {
	line, err := c.line()
	if err != nil {
		return err
	}
	if err := k.requestLine(line); err != nil {
		return err
	}
	k.head.length = -1
	for total := len(line); ; total += len(line) {
		if line, err = c.line(); err != nil {
			return err
		}
		if len(line) == 0 {
			return nil
		}
		if err := k.head.field(line); err != nil || total > maxHead {
			return cmpErr(err, errBadHTTP)
		}
	}
}

func (k *call) requestLine(line []byte) error {
	method, rest, ok := bytes.Cut(line, []byte(" "))
	target, proto, ok2 := bytes.Cut(rest, []byte(" "))
	if !ok || !ok2 || len(target) == 0 || target[0] != '/' || !bytes.HasPrefix(proto, []byte("HTTP/1.")) {
		return errBadHTTP
	}
	k.method = append(k.method, method...)
	k.head.old = string(proto) == "HTTP/1.0"
	k.head.close = k.head.old
	path, query, _ := bytes.Cut(target, []byte("?"))
	k.path, k.query = k.c.srv.table.pathName(path), string(query)
	return nil
}

// field stores one header line if the server uses it.
func (h *header) field(line []byte) error {
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok {
		return errBadHTTP
	}
	value = bytes.TrimSpace(value)
	switch {
	case is(name, "content-length"):
		n, err := strconv.ParseUint(string(value), 10, 31)
		h.length = int(n)
		if err != nil {
			return errBadHTTP
		}
	case is(name, "transfer-encoding"):
		h.chunked = is(value, "chunked")
	case is(name, "connection"):
		h.close = h.close && !is(value, "keep-alive") || is(value, "close")
	case is(name, "expect"):
		h.expect = is(value, "100-continue")
	case is(name, "x-request-id"):
		h.requestID = string(value)
	case is(name, "endpoint-load-metrics-format"):
		h.orca = string(value)
	case is(name, "x-data-parallel-rank"):
		h.rank = string(value)
	case is(name, "x-session-id"):
		h.session = string(value)
	case is(name, "authorization"):
		h.key = string(value)
	case is(name, "x-vllm-priority"):
		h.priority = string(value)
	}
	return nil
}

// is compares b with a lower-case ASCII word and ignores case.
func is(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i := range b {
		c := b[i]
		if c-'A' < 26 {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}
