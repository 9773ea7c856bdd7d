package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// wireLimit is the longest time for everything that a server sends to one client.
const wireLimit = 5 * time.Minute

// heard is everything that a server sent on one connection.
type heard struct {
	all       []byte // every byte, heads included
	status    int    // of the first answer, 0 when there was none
	header    http.Header
	body      []byte // of the first answer
	responses int
	err       error // why the answer is not complete
}

// exchange writes raw to a new connection and reads until the server closes it. half closes the client's side
// after writing.
func exchange(ctx context.Context, front string, raw []byte, half bool) heard {
	ctx, cancel := context.WithTimeout(ctx, wireLimit)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(front, "http://"))
	if err != nil {
		return heard{err: err}
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, err := conn.Write(raw) // a server may answer and close before it has read everything
		if half && err == nil {
			_ = conn.(*net.TCPConn).CloseWrite()
		}
	}()
	all, err := io.ReadAll(conn)
	_ = conn.Close()
	<-written
	return parseHeard(all, err, string(raw[:min(len(raw), 5)]) == "HEAD ")
}

// parseHeard reads the answers of a connection. Interim ones are not counted.
func parseHeard(all []byte, ended error, head bool) heard {
	h := heard{all: all}
	r := bufio.NewReader(bytes.NewReader(all))
	req := &http.Request{Method: http.MethodPost}
	if head {
		req.Method = http.MethodHead
	}
	for {
		resp, err := http.ReadResponse(r, req)
		if err != nil {
			if h.responses == 0 {
				h.err = errors.Join(fmt.Errorf("no answer: %w", err), ended)
			}
			return h
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode < 200 {
			continue
		}
		if h.responses++; h.responses == 1 {
			h.status = resp.StatusCode
			h.header = resp.Header
			h.body = body
			h.err = err
		}
	}
}

// heart is the part that must be equal in two answers to one request, for every API and form: texts, finish
// and stop reasons, token counts. For an answer without a text it is everything except names and times.
func heart(body []byte) (string, error) {
	var t told
	for _, part := range parts(body) {
		var v map[string]any
		if err := json.Unmarshal(part, &v); err != nil {
			var other any
			if json.Unmarshal(part, &other) != nil {
				return "", fmt.Errorf("neither JSON nor events: %.200q", part)
			}
			v = map[string]any{"": other}
		}
		if v["error"] != nil {
			return "", fmt.Errorf("an error inside a 200: %.300s", part)
		}
		t.add(v)
	}
	return t.String(), nil
}

// parts are the JSON texts of an answer: the data of its events, or the whole answer.
func parts(body []byte) [][]byte {
	if !bytes.HasPrefix(body, []byte("data:")) && !bytes.HasPrefix(body, []byte("event:")) {
		return [][]byte{body}
	}
	var all [][]byte
	for line := range bytes.Lines(body) {
		if data, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data: ")); ok &&
			string(data) != "[DONE]" {
			all = append(all, data)
		}
	}
	return all
}

// told gathers an answer.
type told struct {
	texts  []string // by choice
	finish []string
	counts string
	other  []string // parts of no known form
}

func (t *told) at(i int) {
	for len(t.texts) <= i {
		t.texts, t.finish = append(t.texts, ""), append(t.finish, "")
	}
}

func (t *told) say(i int, text, finish any) {
	t.at(i)
	if s, ok := text.(string); ok {
		t.texts[i] += s
	}
	if s, ok := finish.(string); ok {
		t.finish[i] += s
	}
}

// add adds one whole answer or one event.
func (t *told) add(v map[string]any) {
	kind, _ := v["type"].(string)
	switch {
	case v["choices"] != nil:
		t.choices(list(v["choices"]))
	case kind == "response.output_text.delta":
		t.say(0, v["delta"], nil)
	case kind == "response.completed", kind == "response.incomplete":
		v = object(v["response"])
		t.say(0, nil, v["status"])
	case strings.HasPrefix(kind, "response."), kind == "content_block_start", kind == "content_block_stop",
		kind == "message_stop", kind == "ping":
	case kind == "message_start":
		t.at(0) // its usage is that of message_delta
		return
	case kind == "content_block_delta":
		t.say(0, object(v["delta"])["text"], nil)
	case kind == "message_delta":
		t.say(0, nil, object(v["delta"])["stop_reason"])
	case kind == "message":
		for _, c := range list(v["content"]) {
			t.say(0, object(c)["text"], nil)
		}
		t.say(0, nil, v["stop_reason"])
	case v["output"] != nil:
		for _, o := range list(v["output"]) {
			for _, c := range list(object(o)["content"]) {
				t.say(0, object(c)["text"], nil)
			}
		}
		t.say(0, nil, v["status"])
	default:
		t.other = append(t.other, anonymous(v))
	}
	t.count(object(v["usage"]))
}

func (t *told) choices(all []any) {
	for _, c := range all {
		c := object(c)
		i, _ := c["index"].(float64)
		text := c["text"]
		for _, key := range []string{"message", "delta"} {
			if m := object(c[key]); m["content"] != nil {
				text = m["content"]
			}
		}
		t.say(int(i), text, c["finish_reason"])
		if ids := list(c["token_ids"]); len(ids) > 0 {
			t.texts[int(i)] += fmt.Sprint(ids)
		}
	}
}

// count keeps the newest numbers. Cached tokens of a prompt may differ between servers, so for Anthropic's
// usage they are added to the rest.
func (t *told) count(usage map[string]any) {
	number := func(keys ...string) (n float64) {
		for _, key := range keys {
			f, _ := usage[key].(float64)
			n += f
		}
		return n
	}
	if len(usage) > 0 {
		t.counts = fmt.Sprintf("%v + %v",
			number("prompt_tokens", "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"),
			number("completion_tokens", "output_tokens"))
	}
}

func (t *told) String() string {
	return fmt.Sprintf("%q %v %s %s", t.texts, t.finish, t.counts, strings.Join(t.other, " "))
}

// anonymous is v without the fields that name or date an answer.
func anonymous(v map[string]any) string {
	var strip func(any) any
	strip = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			out := map[string]any{}
			for key, value := range v {
				if !slices.Contains(
					[]string{
						"id", "request_id", "created", "created_at", "system_fingerprint",
						"prompt_tokens_details",
					},
					key,
				) {
					out[key] = strip(value)
				}
			}
			return out
		case []any:
			for i := range v {
				v[i] = strip(v[i])
			}
		}
		return v
	}
	b, err := json.Marshal(strip(v))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func list(v any) []any            { l, _ := v.([]any); return l }
func object(v any) map[string]any { m, _ := v.(map[string]any); return m }

// complaint is the reason of a refusal, in the form of its API: OpenAI's, Anthropic's, or FastAPI's for
// unknown paths. Unreadable HTTP is refused in plain text.
func complaint(h heard) (string, error) {
	if ofHTTP(h) {
		return string(h.all), nil
	}
	if h.status < 400 || h.status > 499 {
		return "", fmt.Errorf("status %d", h.status)
	}
	var v struct {
		Type   string
		Detail string
		Error  *struct {
			Message, Type string
			Param         *string
			Code          any
		}
	}
	err := json.Unmarshal(h.body, &v)
	switch {
	case err != nil:
		return "", fmt.Errorf("a refusal that is no JSON: %.200q", h.body)
	case v.Detail != "":
		return v.Detail, nil
	case v.Error == nil || v.Error.Message == "" || v.Error.Type == "":
		return "", fmt.Errorf("a refusal without a message or a type: %.200s", h.body)
	case v.Type == "error":
		return v.Error.Message, nil
	case v.Error.Code != float64(h.status):
		return "", fmt.Errorf("a refusal of status %d with code %v", h.status, v.Error.Code)
	case v.Error.Param != nil:
		return v.Error.Message + " (" + *v.Error.Param + ")", nil
	}
	return v.Error.Message, nil
}

// ofHTTP reports whether HTTP itself, rather than an API, was refused. It recognises a plain-text reason,
// and the statuses that need no reason (RFC 9110: an unmet expectation, an unknown transfer coding, an
// unknown version).
func ofHTTP(h heard) bool {
	switch h.status {
	case http.StatusExpectationFailed, http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return !bytes.HasPrefix(h.body, []byte("{"))
	}
	return h.status >= 400 && h.status < 500 && strings.HasPrefix(h.header.Get("Content-Type"),
		"text/plain") &&
		bytes.HasPrefix(h.body, fmt.Append(nil, h.status))
}

// innerWords only occur inside the pools: fields of transfer parameters.
var innerWords = []string{
	"do_remote_", "remote_block_ids", "remote_engine_id", "remote_request_id", "remote_host", "remote_port",
	"remote_num_tokens", "remote_blocks_expiry",
	"remote_prefill_cached", "___prefill_addr_", "___decode_addr_",
}

// hostileLeak is the first secret in an answer, or "". An inner word that the client has sent itself is no
// leak. An address or an id always is.
func hostileLeak(h heard, asked []byte, secrets []*regexp.Regexp) string {
	for _, s := range secrets {
		if found := s.Find(h.all); found != nil {
			return string(found)
		}
	}
	for _, word := range innerWords {
		if bytes.Contains(h.all, []byte(word)) && !bytes.Contains(asked, []byte(word)) {
			return word
		}
	}
	for _, key := range []string{`"kv_transfer_params":`, `"ec_transfer_params":`} {
		if _, value, found := bytes.Cut(h.all, []byte(key)); found &&
			!bytes.HasPrefix(bytes.TrimSpace(value), []byte("null")) && !bytes.Contains(asked, []byte(key)) {
			return key
		}
	}
	return ""
}
