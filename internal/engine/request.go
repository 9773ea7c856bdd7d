package engine

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Field is one header field of a request, its key in canonical form.
type Field struct{ Key, Value string }

// Request is what Do sends. It is only read, and may be used again.
type Request struct {
	Method, Path string // Path begins with a slash and may carry a query
	// Sent as X-Request-Id unless "". Only a request that has one may go out on a connection that carried
	// another. Each has its own: an answer is told from others by it.
	ID          string
	Header      []Field
	Body        []byte
	ContentType string // of Body, application/json when empty
	Idempotent  bool   // may be sent again when a reused connection dies before the first byte of an answer
	Loads       bool   // the body has transfer params, by which the engine loads the prompt's blocks

	// Last, unless nil, is called just before the first byte leaves, when connecting is done; its error ends the
	// request, unsent.
	Last func() error
}

// validate refuses what could turn one request into two.
func (r *Request) validate() error {
	if !isToken(r.Method) {
		return fmt.Errorf("method %q is not a token", r.Method)
	}
	if !strings.HasPrefix(r.Path, "/") || !isVisible(r.Path) {
		return fmt.Errorf("path %q is not one", r.Path)
	}
	if !isFieldValue(r.ContentType) {
		return errors.New("content type has a control character")
	}
	if !isFieldValue(r.ID) {
		return errors.New("request id has a control character")
	}
	for i := range r.Header {
		if err := r.Header[i].validate(); err != nil {
			return err
		}
	}
	return nil
}

// idHeader is the field that names a request, and the answer to it.
const idHeader = "X-Request-Id"

func (f *Field) validate() error {
	if !isToken(f.Key) {
		return fmt.Errorf("header name %q is not a token", f.Key)
	}
	if !isFieldValue(f.Value) {
		return fmt.Errorf("header %s has a control character", f.Key)
	}
	if isFraming(f.Key) {
		return fmt.Errorf("header %s belongs to the connection", f.Key)
	}
	return nil
}

// isFraming reports whether only the client itself may write the field.
func isFraming(key string) bool {
	switch len(key) {
	case len("host"):
		return strings.EqualFold(key, "host")
	case len("connection"):
		return strings.EqualFold(key, "connection")
	case len("content-type"):
		return strings.EqualFold(key, "content-type")
	case len("content-length"):
		return strings.EqualFold(key, "content-length")
	case len("transfer-encoding"):
		return strings.EqualFold(key, "transfer-encoding")
	}
	return false
}

// fixedLines renders the fields that every request carries.
func fixedLines(host string, o Options) ([]byte, error) {
	// An engine may compress unless the request forbids it.
	fields := []Field{{"User-Agent", "tandem"}, {"Accept-Encoding", "identity"}}
	if o.APIKey != "" {
		fields = append(fields, Field{"Authorization", "Bearer " + o.APIKey})
	}
	for _, key := range slices.Sorted(maps.Keys(o.Header)) {
		for _, v := range o.Header[key] {
			fields = append(fields, Field{key, v})
		}
	}
	b := appendField(nil, "Host", host)
	for _, f := range fields {
		if err := f.validate(); err != nil {
			return nil, err
		}
		b = appendField(b, f.Key, f.Value)
	}
	return b, nil
}

// appendHead writes the head of r as it goes out, the blank line included.
func (r *Request) appendHead(b []byte, prefix string, fixed []byte) []byte {
	b = append(b, r.Method...)
	b = append(b, ' ')
	b = append(b, prefix...)
	b = append(b, r.Path...)
	b = append(b, " HTTP/1.1\r\n"...)
	b = append(b, fixed...)
	if r.ID != "" {
		b = appendField(b, idHeader, r.ID)
	}
	for i := range r.Header {
		b = appendField(b, r.Header[i].Key, r.Header[i].Value)
	}
	if len(r.Body) > 0 || r.Method != http.MethodGet && r.Method != http.MethodHead {
		b = r.appendEntity(b)
	}
	return append(b, "\r\n"...)
}

func (r *Request) appendEntity(b []byte) []byte {
	kind := r.ContentType
	if kind == "" {
		kind = "application/json"
	}
	b = appendField(b, "Content-Type", kind)
	b = append(b, "Content-Length: "...)
	b = strconv.AppendInt(b, int64(len(r.Body)), 10)
	return append(b, "\r\n"...)
}

func appendField(b []byte, key, value string) []byte {
	b = append(b, key...)
	b = append(b, ": "...)
	b = append(b, value...)
	return append(b, "\r\n"...)
}
