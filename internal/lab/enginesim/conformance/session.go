package conformance

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
	"net/url"
	"slices"
	"strings"
	"time"
)

// session is one run. It keeps the params from the prefill server, because they replace the captured ones in
// decode exchanges.
type session struct {
	Target
	handed map[string]handover // by the captured remote_request_id
	ended  bool                // the prefill server was ended
}

// handover is the result of a prefill exchange.
type handover struct {
	params map[string]json.RawMessage
	ids    json.RawMessage // token ids of the prompt; nil: not requested
	used   bool
}

// giveBack sends the decode server a wrong request with each of the unused params. The refusal tells the
// prefill server to free their blocks.
func (s *session) giveBack(ctx context.Context) error {
	if s.Decode == "" || s.ended {
		return nil
	}
	var errs []error
	for _, h := range s.handed {
		if h.used {
			continue
		}
		var x Exchange
		x.Role = "decode"
		x.Request.Method = http.MethodPost
		x.Request.Path = "/v1/completions"
		x.Request.Body, _ = json.Marshal(
			map[string]any{"model": "there is no such model", "prompt": []int{5}, "kv_transfer_params": h.params},
		)
		status, _, body, err := s.ask(ctx, x)
		if err == nil && status != http.StatusNotFound {
			err = fmt.Errorf("status %d: %s", status, body)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// headersOf returns the headers that the answer must have.
func (s *session) headersOf(x Exchange) [][2]string {
	if !s.NoRequestIDs {
		return x.Headers
	}
	return slices.DeleteFunc(slices.Clone(x.Headers), func(h [2]string) bool { return h[0] == "x-request-id" })
}

// remember stores the params of an answer under the id in the captured answer.
func (s *session) remember(captured, ours string) {
	type answer struct {
		Params map[string]json.RawMessage `json:"kv_transfer_params"`
		IDs    json.RawMessage            `json:"prompt_token_ids"`
	}
	var a, b answer
	if json.Unmarshal([]byte(captured), &a) != nil || json.Unmarshal([]byte(ours), &b) != nil ||
		b.Params == nil {
		return
	}
	if id := string(a.Params["remote_request_id"]); id != "" {
		s.handed[id] = handover{params: b.Params, ids: b.IDs}
	}
}

// ask sends the captured request on a new connection, because the order and case of header lines are
// compared.
func (s *session) ask(
	ctx context.Context, x Exchange,
) (status int, headers [][2]string, body string, err error) {
	at := s.URL
	if x.Role == "decode" {
		at = s.Decode
	}
	base, err := url.Parse(at)
	if err != nil {
		return 0, nil, "", err
	}
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "tcp", base.Host)
	if err != nil {
		return 0, nil, "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := c.Write(s.request(x)); err != nil {
		return 0, nil, "", err
	}
	all, err := io.ReadAll(c)
	if err != nil {
		return 0, nil, "", err
	}
	return parse(all)
}

// handOver replaces the captured params by those of this prefill server.
func (s *session) handOver(body []byte) []byte {
	var m map[string]json.RawMessage
	var params struct {
		ID  json.RawMessage `json:"remote_request_id"`
		IDs json.RawMessage `json:"prompt_token_ids"`
	}
	if json.Unmarshal(body, &m) != nil || json.Unmarshal(m["kv_transfer_params"], &params) != nil {
		return body
	}
	h, ok := s.handed[string(params.ID)]
	if !ok {
		return body
	}
	h.used = true
	s.handed[string(params.ID)] = h
	if params.IDs != nil {
		h.params["prompt_token_ids"] = h.ids
	}
	m["kv_transfer_params"], _ = json.Marshal(h.params)
	body, _ = json.Marshal(m)
	return body
}

func (s *session) request(x Exchange) []byte {
	body := []byte(x.Request.Body)
	if x.Role == "decode" {
		body = s.handOver(body)
	} else if x.refusal {
		body = []byte(s.limits(string(body)))
	}
	if string(body) == "null" {
		body = nil
	}
	var text string
	if json.Unmarshal(body, &text) == nil && len(body) > 0 {
		body = []byte(text) // a body that is not JSON was captured as a string
	}
	for _, form := range []string{`"model":"tiny"`, `"model": "tiny"`} {
		name, err := json.Marshal(s.Model)
		if err == nil {
			body = bytes.Replace(body, []byte(form), append([]byte(`"model":`), name...), 1)
		}
	}
	b := fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: engine\r\nConnection: close\r\nContent-Length: %d\r\n",
		x.Request.Method, x.Request.Path, len(body))
	if len(body) > 0 {
		b = append(b, "Content-Type: application/json\r\n"...)
	}
	for k, v := range x.Request.Headers {
		b = fmt.Appendf(b, "%s: %s\r\n", k, v)
	}
	return append(append(b, "\r\n"...), body...)
}

// parse splits an answer: header lines as received, except those of the connection, and the body without
// chunks.
func parse(all []byte) (int, [][2]string, string, error) {
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(all)), nil)
	if err != nil {
		return 0, nil, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil, "", err
	}
	head, _, _ := bytes.Cut(all, []byte("\r\n\r\n"))
	var headers [][2]string
	for line := range strings.SplitSeq(string(head), "\r\n") {
		name, value, ok := strings.Cut(line, ": ")
		if ok && name != "date" && name != "connection" {
			headers = append(headers, [2]string{name, value})
		}
	}
	return resp.StatusCode, headers, string(body), nil
}
