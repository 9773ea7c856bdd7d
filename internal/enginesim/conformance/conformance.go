// Package conformance asks an engine what a real vLLM was asked, and says where it answers otherwise. It
// knows the engine by its address alone.
package conformance

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Exchange is one request to a real vLLM 0.32.0 and its answer.
type Exchange struct {
	Name, Role string // Role is "prefill" or "decode": which of the two engines was asked
	Request    struct {
		Method, Path string
		Headers      map[string]string
		Body         json.RawMessage
	}
	Status  *int // nil: the connection was refused
	Headers [][2]string
	Body    string // "" of a good answer whose body was not kept
	refusal bool   // headers were not kept, and an error's text counts
}

var (
	//go:embed testdata/http-vllm-0.32.0.jsonl
	exchanges []byte
	//go:embed testdata/refusals-vllm-0.32.0.jsonl
	refusals []byte
)

// Captures are all of the exchanges: refusals first, since the last of the others end engines.
func Captures() ([]Exchange, error) {
	all, err := lines(refusals, func(line []byte) (Exchange, error) {
		var r struct {
			Name, Method, Path, Body string
			Request                  json.RawMessage
			Status                   int
		}
		err := json.Unmarshal(line, &r)
		x := Exchange{Name: r.Name, Role: "prefill", Status: &r.Status, Body: r.Body, refusal: true}
		x.Request.Method = cmp.Or(r.Method, http.MethodPost)
		x.Request.Path = r.Path
		x.Request.Body = r.Request
		return x, err
	})
	if err != nil {
		return nil, err
	}
	whole, err := lines(exchanges, func(line []byte) (x Exchange, err error) {
		err = json.Unmarshal(line, &x)
		return x, err
	})
	return append(all, whole...), err
}

func lines(text []byte, read func([]byte) (Exchange, error)) ([]Exchange, error) {
	var all []Exchange
	for line := range bytes.Lines(text) {
		x, err := read(line)
		if err != nil {
			return nil, fmt.Errorf("captures: %w", err)
		}
		all = append(all, x)
	}
	return all, nil
}

// Target is what is asked: an engine as a prefill server with block events and --enable-scale-out, without a
// tool parser, of a text model with 2,048 tokens; and, for the exchanges of a decode server, a second one of
// the same kind that pulls from it.
type Target struct {
	URL    string
	Decode string // URL of the decode server; "": its exchanges are left out
	Model  string // served name of both
	// Context is --max-model-len, 4096 where it is 0.
	Context int
	// NoRequestIDs says that the servers run without --enable-request-id-headers.
	NoRequestIDs bool
	// EndPrefill ends the prefill server, and the decode server may die of its last exchange; nil: those
	// exchanges are left out.
	EndPrefill func() error
}

// capturedContext is --max-model-len of the captured servers.
const capturedContext = 4096

// Difference is one answer that is not as the captured one.
type Difference struct {
	Exchange string
	What     string // "status", "headers", "body", "text", "no answer"
	Got      string
	Want     string
}

func (d Difference) String() string {
	return fmt.Sprintf("%s: %s\n got %s\nwant %s", d.Exchange, d.What, d.Got, d.Want)
}

// Result of a run.
type Result struct {
	Asked       int
	Skipped     []string // exchanges that need a second engine or would end this one
	Differences []Difference
}

// Run asks t everything that it can be asked and survives, or does not survive where it may end. Params of
// transfers that nobody has used are given back if there is a decode server; those of a second prompt, which
// no answer shows, run out by themselves, as all do without one.
func Run(ctx context.Context, t Target, all []Exchange) Result {
	var r Result
	s := session{Target: t, handed: make(map[string]handover)}
	for _, x := range all {
		if s.skips(x) {
			r.Skipped = append(r.Skipped, x.Name)
			continue
		}
		r.Asked++
		r.Differences = append(r.Differences, s.compare(ctx, x)...)
	}
	if err := s.giveBack(ctx); err != nil {
		r.Differences = append(r.Differences, Difference{"what is left", "no answer", err.Error(), "refused"})
	}
	return r
}

// session is one run. It remembers what the prefill server handed out, since decode exchanges need it in the
// place of what was captured.
type session struct {
	Target
	handed map[string]handover // by the captured remote_request_id
	ended  bool                // the prefill server was
}

// handover is what a prefill exchange gave.
type handover struct {
	params map[string]json.RawMessage
	ids    json.RawMessage // of the prompt, nil when they were not asked for
	used   bool
}

// deadly are exchanges that need the prefill server dead, or after which the decode server is.
var deadly = []string{
	"leg 2 streaming after P died", "leg 2 after P died",
	"kv_transfer_params with only do_remote_prefill: the engine dies", "and stays dead",
}

func (s *session) skips(x Exchange) bool {
	return x.Role == "decode" && (s.Decode == "" || s.EndPrefill == nil && slices.Contains(deadly, x.Name))
}

// giveBack has the decode server refuse a request with each of the unused params: it tells the prefill server
// that their blocks are not wanted.
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

// otherWords are refusals whose text lists the branches of a Python type, or a value in Python's form, or is
// that of Python's JSON: only their status counts.
var otherWords = []string{
	"response_format unknown", "unknown part", "message without role", "logit_bias text value",
	"messages bad json", "responses bad json", "responses input unknown type",
	"responses tools without name", "responses tools unknown type", "responses tools chat form",
	"responses tool_choice unknown", "responses text format unknown",
	"completions prompt object", "completions prompt number", "completions prompt mixed",
	"completions prompt negative id",
}

var variable = regexp.MustCompile(`<dict( of \d+ items)?>`)

func (s *session) compare(ctx context.Context, x Exchange) []Difference {
	differ := func(what, got, want string) []Difference { return []Difference{{x.Name, what, got, want}} }
	if x.Name == deadly[0] {
		s.ended = true
		if err := s.EndPrefill(); err != nil {
			return differ("the end of the prefill server", err.Error(), "ended")
		}
	}
	status, headers, body, err := s.ask(ctx, x)
	switch {
	case x.Status == nil && err == nil:
		return differ("status", fmt.Sprint(status, " ", body), "no answer: the engine is dead")
	case x.Status == nil:
		return nil
	case err != nil:
		return differ("no answer", err.Error(), fmt.Sprint(*x.Status))
	case status != *x.Status:
		return differ("status", fmt.Sprint(status, " ", body), fmt.Sprint(*x.Status, " ", x.Body))
	case x.refusal:
		return s.compareText(x, body)
	}
	s.remember(x.Body, body)
	var all []Difference
	if got, want := HeaderShape(headers), HeaderShape(s.headersOf(x)); got != want {
		all = append(all, differ("headers", got, want)...)
	}
	got, err1 := BodyShape(x.Request.Path, body)
	want, err2 := BodyShape(x.Request.Path, x.Body)
	if err1 != nil || err2 != nil || got != want {
		if x.Request.Path == "/metrics" {
			got, want = without(got, want), without(want, got)
		}
		all = append(all, differ("body", got, want)...)
	}
	return all
}

// without are the lines of a that b does not have.
func without(a, b string) string {
	has := strings.Split(b, "\n")
	return strings.Join(
		slices.DeleteFunc(strings.Split(a, "\n"), func(line string) bool { return slices.Contains(has, line) }),
		"\n",
	)
}

// headersOf are those that the answer has to have.
func (s *session) headersOf(x Exchange) [][2]string {
	if !s.NoRequestIDs {
		return x.Headers
	}
	return slices.DeleteFunc(slices.Clone(x.Headers), func(h [2]string) bool { return h[0] == "x-request-id" })
}

// remember keeps the params of an answer under the id that the captured answer's have.
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

// compareText compares the words of a refusal.
func (t Target) compareText(x Exchange, body string) []Difference {
	if x.Body == "" ||
		slices.ContainsFunc(otherWords, func(name string) bool { return strings.HasPrefix(x.Name, name) }) {
		return nil
	}
	got := variable.ReplaceAllString(strings.ReplaceAll(body, t.Model, "tiny"), "<dict>")
	want := variable.ReplaceAllString(t.limits(x.Body), "<dict>")
	if got == want {
		return nil
	}
	return []Difference{{x.Name, "text", got, want}}
}

// ask sends the captured request on a connection of its own, since header lines count in order and case.
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

// limits puts t's context in the place of the captured one, and one more in the place of one more.
func (t Target) limits(text string) string {
	if t.Context == 0 {
		return text
	}
	for more := range 2 {
		text = strings.ReplaceAll(text, fmt.Sprint(capturedContext+more), fmt.Sprint(t.Context+more))
	}
	return text
}

// handOver puts the params that this prefill server gave in the place of the captured ones.
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
		body = []byte(text) // a body that is no JSON was captured as a string
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

// parse takes an answer apart: header lines as they came, without those of the connection, the body without
// its chunks.
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
