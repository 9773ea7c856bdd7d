//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"
)

// question is a request of a client.
type question struct {
	path string
	body map[string]any
}

const (
	completions = "/v1/completions"
	chats       = "/v1/chat/completions"
)

// with returns the question with one field changed or added.
func (q question) with(key string, value any) question {
	body := maps.Clone(q.body)
	body[key] = value
	return question{q.path, body}
}

func (q question) streamed() question {
	if q.path == messages || q.path == responses {
		return q.with("stream", true)
	}
	return q.with("stream", true).with("stream_options", map[string]bool{"include_usage": true})
}

func (q question) String() string {
	raw, _ := json.Marshal(q.body)
	return fmt.Sprintf("%s %.300s", q.path, raw)
}

// reply is an answer as a client sees it.
type reply struct {
	status int
	header http.Header
	texts  []string // by choice
	finish []string // by choice
	usage  *tokenUsage
	failed *failed // an error body, or an error event in a stream
	done   bool    // the stream had its end marker, or the body was complete
	err    error   // of the connection
}

type tokenUsage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Details    *struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

type failed struct {
	Message string `json:"message"`
	Type    string `json:"type"`
	Code    int    `json:"code"`
}

// part is a whole body or an event.
type part struct {
	Choices []struct {
		Index   int    `json:"index"`
		Text    string `json:"text"`
		Finish  string `json:"finish_reason"`
		Message struct {
			Content string `json:"content"`
		} `json:"message"`
		Delta struct {
			Content string `json:"content"`
		} `json:"delta"`
	} `json:"choices"`
	Usage *tokenUsage `json:"usage"`
	Error *failed     `json:"error"`
}

// ask sends q to base and reads the answer to its end. seen, if not nil, is called after each event of a
// stream.
func ask(ctx context.Context, client *http.Client, base string, q question, seen func(*reply)) *reply {
	raw, err := json.Marshal(q.body)
	if err != nil {
		return &reply{err: err}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+q.path, bytes.NewReader(raw))
	if err != nil {
		return &reply{err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return &reply{err: err}
	}
	defer resp.Body.Close()
	r := &reply{status: resp.StatusCode, header: resp.Header}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		r.err = r.readEvents(resp.Body, seen)
		return r
	}
	body, err := io.ReadAll(resp.Body)
	if r.err = err; err == nil {
		r.err = r.take(body)
		r.done = true
	}
	return r
}

// readEvents reads a stream. A stream without its API's last event is not done.
func (r *reply) readEvents(in io.Reader, seen func(*reply)) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		data, isData := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data: "))
		switch {
		case !isData:
			continue
		case string(data) == "[DONE]":
			r.done = true
			continue
		}
		if err := r.take(data); err != nil {
			return err
		}
		if seen != nil {
			seen(r)
		}
	}
}

func (r *reply) take(data []byte) error {
	var p part
	if err := json.Unmarshal(data, &p); err != nil {
		return fmt.Errorf("%w in %.200q", err, data)
	}
	for _, c := range p.Choices {
		for len(r.texts) <= c.Index {
			r.texts, r.finish = append(r.texts, ""), append(r.finish, "")
		}
		r.texts[c.Index] += c.Text + c.Message.Content + c.Delta.Content
		r.finish[c.Index] += c.Finish
	}
	if p.Usage != nil {
		r.usage = p.Usage
	}
	if p.Error != nil {
		r.failed = p.Error
	}
	return r.takeOther(data)
}

// verdict is the result of the comparison of an answer with the reference.
type verdict int

const (
	exact verdict = iota
	clearError
	wrong
)

// judge compares an answer with the right one. An error is clear if it has the API's shape and a message,
// shows no address, and the content that was streamed before it is right.
func judge(want, got *reply) (verdict, string) {
	switch {
	case want.err != nil || want.status != 200:
		return wrong, fmt.Sprintf("the reference did not answer: %d %v", want.status, want.err)
	case got.failed != nil:
		return judgeError(want, got)
	case got.err != nil:
		return wrong, fmt.Sprintf("status %d, then %v", got.status, got.err)
	case got.status != 200:
		return wrong, fmt.Sprintf("status %d without an error body", got.status)
	case !got.done:
		return wrong, "the stream has no end"
	case !slices.Equal(got.texts, want.texts):
		return wrong, fmt.Sprintf("answered %.60q, one engine alone %.60q", got.texts, want.texts)
	case !slices.Equal(got.finish, want.finish):
		return wrong, fmt.Sprintf("finished %q, one engine alone %q", got.finish, want.finish)
	case (got.usage == nil) != (want.usage == nil), got.usage != nil &&
		(got.usage.Prompt != want.usage.Prompt || got.usage.Completion != want.usage.Completion):
		return wrong, fmt.Sprintf("usage %+v, one engine alone %+v", got.usage, want.usage)
	}
	return exact, ""
}

func judgeError(want, got *reply) (verdict, string) {
	f := got.failed
	switch {
	case f.Message == "" || f.Type == "":
		return wrong, fmt.Sprintf("an error that says nothing: %+v", f)
	case strings.Contains(f.Message, "127.0.0.1"):
		return wrong, "an error that shows an address: " + f.Message
	case got.status != 200 && (got.status < 500 && got.status != 429 || got.status != f.Code):
		return wrong, fmt.Sprintf("status %d: %+v", got.status, f)
	}
	for i, text := range got.texts {
		if !strings.HasPrefix(want.texts[i], text) {
			return wrong, fmt.Sprintf("before the error it streamed %.60q, one engine alone %.60q",
				text, want.texts[i])
		}
	}
	return clearError, fmt.Sprintf("%d %s", got.status, f.Message)
}

// writer makes questions: prompts with a few long beginnings that many prompts share, each with its own
// end. One goroutine owns it.
type writer struct {
	rnd        *rand.Rand
	beginnings [][]string
	turn       int
}

func newWriter(seed uint64) *writer {
	w := &writer{rnd: rand.New(rand.NewPCG(7, 7))}
	for i := range 5 {
		w.beginnings = append(w.beginnings, w.words(150+120*i))
	}
	w.rnd = rand.New(rand.NewPCG(seed, 8)) // all writers share the beginnings, and each has its own ends
	return w
}

var vocabulary = strings.Fields("the of and a to in is you that it he was for on are as with his they I at " +
	"be this have from or one had by word but not what all were " +
	"block cache token prompt prefill decode router lease engine model system please explain write question " +
	"code data value key list")

func (w *writer) words(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = vocabulary[w.rnd.IntN(len(vocabulary))]
	}
	return out
}

func (w *writer) text() string {
	return " " +
		strings.Join(slices.Concat(w.beginnings[w.rnd.IntN(len(w.beginnings))], w.words(5+w.rnd.IntN(60))), " ")
}

// ids are n random tokens of the simulator's vocabulary.
func (w *writer) ids(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = 264 + w.rnd.IntN(3000)
	}
	return out
}

// sharedIDs returns a prompt with the beginning of other questions.
func (w *writer) sharedIDs() []int {
	var out []int
	for _, word := range w.beginnings[w.rnd.IntN(len(w.beginnings))] {
		out = append(out, 264+slices.Index(vocabulary, word))
	}
	return append(out, w.ids(5+w.rnd.IntN(60))...)
}

func (w *writer) completion(prompt any, maxTokens int) question {
	return question{
		completions, map[string]any{"model": "sim", "prompt": prompt, "max_tokens": maxTokens, "temperature": 0},
	}
}

func (w *writer) chat(maxTokens int, messages ...map[string]string) question {
	return question{
		chats, map[string]any{"model": "sim", "messages": messages, "max_tokens": maxTokens, "temperature": 0},
	}
}

func message(role, content string) map[string]string {
	return map[string]string{"role": role, "content": content}
}

// next is a question of the kinds in turn: text, ids and chat, whole and streamed.
func (w *writer) next(maxTokens int) question {
	w.turn++
	var q question
	switch w.turn % 3 {
	case 0:
		q = w.completion(w.text(), maxTokens)
	case 1:
		q = w.completion(w.sharedIDs(), maxTokens)
	case 2:
		q = w.chat(maxTokens, message("system", w.text()), message("user", strings.Join(w.words(12), " ")))
	}
	if w.turn/3%2 == 0 {
		return q.streamed()
	}
	return q
}

// newClient returns a client with its own connections, so that a test can close them. The client closes
// idle connections before the engines do (after 5 s).
func newClient() *http.Client {
	return &http.Client{
		Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 2 * time.Second},
	}
}
