package http1

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// response is the answer to one request. Head and first bytes leave in one write: at a flush, when the
// handler returns, or when there is much to write.
type response struct {
	c      *conn
	body   *body
	header http.Header

	status   int
	size     bodySize
	typed    bool      // the handler named a type
	last     bool      // no other request follows
	headDone bool      // the blank line is in out
	pending  []byte    // a short body of unknown length
	out      []byte    // not sent yet
	by       time.Time // write deadline
	err      error     // of a write
}

// bodySize is the length of the body, and the way to declare it.
type bodySize struct {
	declared int64 // Content-Length, -1 where the handler said none
	written  int64 // of the body
	chunked  bool
}

var _ http.ResponseWriter = (*response)(nil)

const (
	shortBody = 2 << 10  // up to which an answer without Content-Length gets one
	muchOut   = 16 << 10 // pending bytes above this limit are written at once
)

// Header implements [http.ResponseWriter].
func (w *response) Header() http.Header {
	if w.header == nil {
		w.header = make(http.Header, 8)
	}
	return w.header
}

// SetReadDeadline is for [http.ResponseController]. It is set when something is read.
func (w *response) SetReadDeadline(by time.Time) error {
	w.body.by = by
	return nil
}

// SetWriteDeadline is for [http.ResponseController]. It is set when something is written.
func (w *response) SetWriteDeadline(by time.Time) error {
	w.by = by
	return nil
}

// WriteHeader implements [http.ResponseWriter].
func (w *response) WriteHeader(status int) {
	if w.status != 0 || status < 200 {
		return // no handler here has interim answers to give
	}
	w.status = status
	w.out = append(w.out, "HTTP/1.1 "...)
	w.out = strconv.AppendInt(w.out, int64(status), 10)
	w.out = append(w.out, ' ')
	w.out = append(w.out, http.StatusText(status)...)
	w.out = append(w.out, "\r\n"...)
	w.fields()
}

// fields appends the header in the order of its keys, without the fields that the connection itself writes.
func (w *response) fields() {
	var some [16]string
	keys := some[:0]
	for key := range w.header {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	dated := false
	for _, key := range keys {
		values := w.header[key]
		if len(values) == 0 {
			continue
		}
		switch key {
		case "Content-Length":
			if n, err := strconv.ParseInt(values[0], 10, 64); err == nil && n >= 0 {
				w.size.declared = n
			}
			continue
		case "Transfer-Encoding":
			continue // is the connection's own
		case "Connection":
			w.last = w.last || slices.ContainsFunc(values, isClose)
			continue
		case "Date":
			dated = true
		case "Content-Type":
			w.typed = true
		}
		for _, value := range values {
			w.out = appendField(w.out, key, value)
		}
	}
	if !dated {
		w.out = append(w.out, date()...)
	}
}

func isClose(value string) bool { return strings.EqualFold(value, "close") }

// appendField writes one line. A line break in a value would begin another.
func appendField(b []byte, key, value string) []byte {
	b = append(b, key...)
	b = append(b, ": "...)
	start := len(b)
	b = append(b, value...)
	for i := start; i < len(b); i++ {
		if b[i] == '\r' || b[i] == '\n' {
			b[i] = ' '
		}
	}
	return append(b, "\r\n"...)
}

// bodyless reports whether the answer can have no body, even if its fields declare one.
func (w *response) bodyless() bool {
	return w.status == http.StatusNoContent || w.status == http.StatusNotModified
}

// endHead writes the fields that declare the end of the body, and the blank line. length is the length of
// the body, -1 if unknown; first is its beginning.
func (w *response) endHead(length int64, first []byte) {
	w.headDone = true
	if !w.typed && len(first) > 0 {
		w.out = appendField(w.out, "Content-Type", http.DetectContentType(first))
	}
	switch {
	case w.bodyless():
	case length >= 0:
		w.out = append(w.out, "Content-Length: "...)
		w.out = strconv.AppendInt(w.out, length, 10)
		w.out = append(w.out, "\r\n"...)
	default:
		w.size.chunked = true
		w.out = append(w.out, "Transfer-Encoding: chunked\r\n"...)
	}
	c := w.c
	if w.last = w.last || w.body.isLast() || c.s.closing.Load(); w.last {
		w.out = append(w.out, "Connection: close\r\n"...)
	}
	w.out = append(w.out, "\r\n"...)
}

// Write implements [http.ResponseWriter].
func (w *response) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case w.err != nil:
		return 0, w.err
	case len(b) == 0:
		return 0, nil
	case w.bodyless():
		return 0, http.ErrBodyNotAllowed
	}
	if w.size.written += int64(len(b)); w.size.declared >= 0 && w.size.written > w.size.declared {
		return 0, http.ErrContentLength // and the connection ends, as after too little
	}
	if !w.headDone {
		switch {
		case w.size.declared >= 0:
			w.endHead(w.size.declared, b)
		case len(w.pending)+len(b) <= shortBody:
			w.pending = append(w.pending, b...)
			return len(b), nil
		default:
			w.beginChunks(b)
		}
	}
	w.put(b)
	return len(b), w.err
}

// beginChunks commits to a body of unknown length. next follows behind the pending bytes.
func (w *response) beginChunks(next []byte) {
	first := w.pending
	if len(first) == 0 {
		first = next
	}
	w.endHead(-1, first)
	if pending := w.pending; len(pending) > 0 {
		w.pending = nil
		w.put(pending)
	}
}

// put writes a part of the body behind the head. It does not copy long parts.
func (w *response) put(b []byte) {
	if w.size.chunked {
		w.out = strconv.AppendInt(w.out, int64(len(b)), 16)
		w.out = append(w.out, "\r\n"...)
	}
	if len(b) >= muchOut {
		w.send(b)
	} else {
		w.out = append(w.out, b...)
	}
	if w.size.chunked {
		w.out = append(w.out, "\r\n"...)
	}
	if len(w.out) >= muchOut {
		w.send(nil)
	}
}

// send writes out, and then b.
func (w *response) send(b []byte) {
	if w.err != nil || len(w.out)+len(b) == 0 {
		return
	}
	w.err = w.c.write(w.out, b, w.by)
	w.out = w.out[:0]
}

// FlushError is for [http.ResponseController].
func (w *response) FlushError() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !w.headDone {
		if w.size.declared >= 0 {
			w.endHead(w.size.declared, nil)
		} else {
			w.beginChunks(nil)
		}
	}
	w.send(nil)
	return w.err
}

// finish ends the answer when the handler has returned; false: the connection cannot carry another
// request.
func (w *response) finish() bool {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case !w.headDone && w.size.declared >= 0 && !w.bodyless():
		w.endHead(w.size.declared, nil)
	case !w.headDone:
		w.endHead(int64(len(w.pending)), w.pending)
		w.out = append(w.out, w.pending...)
	}
	if w.size.chunked {
		w.out = append(w.out, "0\r\n\r\n"...)
	}
	w.send(nil)
	whole := w.size.declared < 0 || w.size.written == w.size.declared || w.bodyless()
	return w.err == nil && whole && !w.last
}

// dateLine is the Date field of one second.
type dateLine struct {
	second int64
	line   []byte
}

var today atomic.Pointer[dateLine]

// date returns the Date field of now, which is written once a second.
func date() []byte {
	now := time.Now()
	d := today.Load()
	if d == nil || d.second != now.Unix() {
		d = &dateLine{second: now.Unix(), line: now.UTC().AppendFormat([]byte("Date: "), http.TimeFormat+"\r\n")}
		today.Store(d)
	}
	return d.line
}
