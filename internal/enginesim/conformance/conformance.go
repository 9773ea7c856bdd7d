// Package conformance asks an engine what a real vLLM was asked, and says where it answers otherwise. It knows the engine by its address alone.
package conformance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
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

// Read reads the captures in folder: whole exchanges, and refusals.
func Read(folder string) ([]Exchange, error) {
	var all []Exchange
	err := lines(filepath.Join(folder, "http-vllm-0.32.0.jsonl"), func(line []byte) error {
		var x Exchange
		err := json.Unmarshal(line, &x)
		all = append(all, x)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = lines(filepath.Join(folder, "refusals-vllm-0.32.0.jsonl"), func(line []byte) error {
		var r struct {
			Name, Path, Body string
			Request          json.RawMessage
			Status           int
		}
		err := json.Unmarshal(line, &r)
		x := Exchange{Name: r.Name, Role: "prefill", Status: &r.Status, Body: r.Body, refusal: true}
		x.Request.Method, x.Request.Path, x.Request.Body = http.MethodPost, r.Path, r.Request
		all = append(all, x)
		return err
	})
	return all, err
}

func lines(name string, each func([]byte) error) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	for line := range bytes.Lines(data) {
		if err := each(line); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// Target is what is asked: an engine as a prefill server with block events, --enable-scale-out and --enable-request-id-headers, without a tool parser,
// of a text model with 2,048 tokens and a context of 4,096.
type Target struct {
	URL   string
	Model string // its served name
}

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

// Run asks t everything that one engine can be asked and survives. It needs a minute at most, and leaves leases that run out by themselves.
func Run(ctx context.Context, t Target, all []Exchange) Result {
	var r Result
	for _, x := range all {
		if x.Role != "prefill" {
			r.Skipped = append(r.Skipped, x.Name)
			continue
		}
		r.Asked++
		r.Differences = append(r.Differences, t.compare(ctx, x)...)
	}
	return r
}

// otherWords are refusals whose text lists the branches of a Python type, or a value in Python's form: only their status counts.
var otherWords = []string{"response_format unknown", "unknown part", "message without role", "logit_bias text value"}

var variable = regexp.MustCompile(`<dict( of \d+ items)?>`)

func (t Target) compare(ctx context.Context, x Exchange) []Difference {
	differ := func(what, got, want string) []Difference { return []Difference{{x.Name, what, got, want}} }
	status, headers, body, err := t.ask(ctx, x)
	switch {
	case err != nil:
		return differ("no answer", err.Error(), fmt.Sprint(*x.Status))
	case status != *x.Status:
		return differ("status", fmt.Sprint(status, " ", body), fmt.Sprint(*x.Status, " ", x.Body))
	case x.refusal:
		return t.compareText(x, body)
	}
	var all []Difference
	if got, want := HeaderShape(headers), HeaderShape(x.Headers); got != want {
		all = append(all, differ("headers", got, want)...)
	}
	got, err1 := BodyShape(x.Request.Path, body)
	want, err2 := BodyShape(x.Request.Path, x.Body)
	if err1 != nil || err2 != nil || got != want {
		all = append(all, differ("body", got, want)...)
	}
	return all
}

// compareText compares the words of a refusal.
func (t Target) compareText(x Exchange, body string) []Difference {
	if x.Body == "" || slices.ContainsFunc(otherWords, func(name string) bool { return strings.HasPrefix(x.Name, name) }) {
		return nil
	}
	got := variable.ReplaceAllString(strings.ReplaceAll(body, t.Model, "tiny"), "<dict>")
	want := variable.ReplaceAllString(x.Body, "<dict>")
	if got == want {
		return nil
	}
	return []Difference{{x.Name, "text", got, want}}
}

// ask sends the captured request on a connection of its own, since header lines count in order and case.
func (t Target) ask(ctx context.Context, x Exchange) (status int, headers [][2]string, body string, err error) {
	base, err := url.Parse(t.URL)
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
	if _, err := c.Write(t.request(x)); err != nil {
		return 0, nil, "", err
	}
	all, err := io.ReadAll(c)
	if err != nil {
		return 0, nil, "", err
	}
	return parse(all)
}

func (t Target) request(x Exchange) []byte {
	body := []byte(x.Request.Body)
	if string(body) == "null" {
		body = nil
	}
	var text string
	if json.Unmarshal(body, &text) == nil && len(body) > 0 {
		body = []byte(text) // a body that is no JSON was captured as a string
	}
	for _, form := range []string{`"model":"tiny"`, `"model": "tiny"`} {
		name, err := json.Marshal(t.Model)
		if err == nil {
			body = bytes.Replace(body, []byte(form), append([]byte(`"model":`), name...), 1)
		}
	}
	b := fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: engine\r\nConnection: close\r\nContent-Length: %d\r\n", x.Request.Method, x.Request.Path, len(body))
	if len(body) > 0 {
		b = append(b, "Content-Type: application/json\r\n"...)
	}
	for k, v := range x.Request.Headers {
		b = fmt.Appendf(b, "%s: %s\r\n", k, v)
	}
	return append(append(b, "\r\n"...), body...)
}

// parse takes an answer apart: header lines as they came, without those of the connection, the body without its chunks.
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
