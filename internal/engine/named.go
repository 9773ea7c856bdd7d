package engine

import (
	"bytes"
	"errors"
)

// An engine, or a proxy before the engine, may send bytes beyond an answer. Bytes that arrive after the
// connection was looked at, and before the next request on it is answered, read like the answer to that
// request. No look at the socket can rule this out. So an answer has to name its question: vLLM ends the id
// of a completion, a chat or an embedding with the X-Request-Id of the request, and with
// --enable-request-id-headers repeats it in the head of every answer.
//
// Two rules follow. A connection carries another request only if its last answer named its question. So only
// connections to engines that name questions are kept. Where the body named the question, the next request
// has the same path: vLLM repeats the id in the bodies of some paths, but not in others (/v1/responses). The
// second rule: on such a connection an answer that names another question, or none, is not an answer. A
// request without an id gets a connection of its own.

// ErrAnother is an answer that does not name the request that it should answer. Nothing from the answer has
// been returned, except for a beginning that is shorter than an event.
var ErrAnother = errors.New("the engine sent bytes that do not answer this request")

// naming is whether an answer names its question.
type naming struct {
	named bool
	id    string // to be looked for in the body; "" once that has been done, or need not be
	seen  []byte // beginning of the body, where the first read was too short to tell
}

// names is what the answers on a connection have shown.
type names struct {
	inHeads bool   // the head of an answer named its question: all answers of this engine do so
	path    string // of the last request, whose answer may have named it in its body
}

// here reports whether the answer to a request for path will name its question.
func (n *names) here(path string) bool { return n.inHeads || n.path == path }

// nameWithin is in how many bytes of a body its id is looked for. vLLM writes it first.
const nameWithin = 512

// checkHead looks for the id of the request in the head of its answer. Where it is not there, the body of a
// 200 has to be looked at. Other answers need not name their question: they are errors, and are the last on
// their connection.
func (r *Response) checkHead(asked *Request) *Error {
	if asked.ID == "" {
		return nil
	}
	switch said := r.Header.Get(idHeader); {
	case said == asked.ID:
		r.naming.named = true
		r.conn.names.inHeads = true
	case said != "" && r.conn.names.inHeads:
		r.client.idle.distrust()
		return &Error{Phase: Head, Sent: true, Err: ErrAnother}
	case r.Status == 200:
		r.naming.id = asked.ID
		r.conn.names.path = asked.Path
	}
	return nil
}

// checkBody looks for the request's id in the body received so far; b is its newest part. It returns false
// where the body is not the answer to the request; the response has failed then.
func (r *Response) checkBody(b []byte) bool {
	first := b
	if r.naming.seen != nil {
		first = append(r.naming.seen, b...)
	}
	named, known := nameIn(first, r.naming.id, r.body.done)
	if !known {
		r.naming.seen = append([]byte{}, first...)
		return true
	}
	r.naming = naming{named: named}
	if named || !r.conn.kept() || isErrorEvent(first) {
		return true
	}
	r.client.idle.distrust()
	r.fail(ErrAnother)
	return false
}

// nameIn reports whether a value in the beginning of a body ends with id, as soon as that is known: with the
// first event at the latest, so that no event is passed on before. over says that the body is no longer.
func nameIn(first []byte, id string, over bool) (named, known bool) {
	first = behindComments(first)
	first = first[:min(len(first), nameWithin)]
	for end := 0; ; end++ {
		quote := bytes.IndexByte(first[end:], '"')
		if quote < 0 {
			break
		}
		if end += quote; end >= len(id) && string(first[end-len(id):end]) == id {
			return true, true
		}
	}
	return false, over || len(first) == nameWithin || bytes.Contains(first, []byte("\n\n")) ||
		bytes.Contains(first, []byte("\n\r\n"))
}

// behindComments skips the comments with which proxies keep a stream awake.
func behindComments(b []byte) []byte {
	for len(b) > 0 && b[0] == ':' {
		_, rest, _ := bytes.Cut(b, []byte("\n"))
		b = bytes.TrimLeft(rest, "\r\n")
	}
	return b
}

// isErrorEvent reports whether a stream begins with vLLM's error event, which has no id.
func isErrorEvent(first []byte) bool {
	data, is := bytes.CutPrefix(behindComments(first), []byte("data:"))
	data = bytes.TrimLeft(data, " ")
	return is &&
		(bytes.HasPrefix(data, []byte(`{"error"`)) || bytes.HasPrefix(data, []byte(`{"object":"error"`)))
}

// release lets go of the connection. ok says that the answer was read to its end.
func (r *Response) release(ok bool) {
	c := r.conn
	if c == nil {
		return
	}
	r.conn = nil
	if r.stop != nil && !r.stop() {
		ok = false // ctx ended: abort runs or has run
	}
	spoke := ok && len(c.rest()) > 0
	if spoke {
		r.client.idle.distrust()
	}
	switch {
	case !ok || spoke:
		c.close()
		return
	case !r.body.reuse || !r.naming.named:
		c.finish()
		return
	}
	c.setPatience(0)
	c.dropBuffer()
	r.client.idle.put(c)
}
