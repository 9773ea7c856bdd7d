package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// flight is a request that is on its way while something fails. Its goroutine owns landed until done is
// closed.
type flight struct {
	request
	phase  string // where the fault finds it: a row of the table
	base   string
	begun  time.Time
	took   time.Duration
	fair   time.Duration // of took, when no engine stood in line for a CPU
	landed landed
	pieces atomic.Int64  // of a stream's text, so far
	first  chan struct{} // closed with the first content of a stream, or with done
	done   chan struct{}
}

// landed is all that a client learns of one request at any of the four doors.
type landed struct {
	id       string // X-Request-Id
	status   int
	text     string
	ids      []int // of completions that ask for them
	finish   string
	prompt   int // tokens, as usage has them
	output   int
	ended    bool          // the last event, or the whole body, is there
	failure  string        // the message of an error
	odd      string        // what is not as the door's API has it
	broken   error         // of the connection
	canceled bool          // by us
	pause    time.Duration // the longest between two pieces of a stream's text
}

const (
	doorMessages  = "/v1/messages"
	doorResponses = "/v1/responses"
)

// launch sends q to base; the flight lands by itself.
func launch(ctx context.Context, base, phase string, q request) *flight {
	f := &flight{
		request: q, phase: phase, base: base, begun: time.Now(), first: make(chan struct{}),
		done: make(chan struct{}),
	}
	go func() {
		defer close(f.done)
		clock := runTime()
		begin := sync.OnceFunc(func() { close(f.first) })
		defer begin()
		f.landed = tell(ctx, base, q, func() {
			f.pieces.Add(1)
			begin()
		})
		f.took, f.fair = time.Since(f.begun), clock.elapsed()
	}()
	return f
}

// flies reports whether the answer is not there yet.
func (f *flight) flies() bool {
	select {
	case <-f.done:
		return false
	default:
		return true
	}
}

// land waits for the end of the flight.
func (f *flight) land() *landed {
	<-f.done
	return &f.landed
}

// tell asks q of base and reads the answer to its end, or to where it breaks off. begin is called with each
// piece of a stream's text.
func tell(ctx context.Context, base string, q request, begin func()) landed {
	var t landed
	data, err := json.Marshal(q.body)
	if err != nil {
		return landed{broken: err}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+q.path, bytes.NewReader(data))
	if err != nil {
		return landed{broken: err}
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return landed{broken: err, canceled: ctx.Err() != nil}
	}
	defer resp.Body.Close()
	t.id, t.status = resp.Header.Get("X-Request-Id"), resp.StatusCode
	switch {
	case t.status == http.StatusOK && q.body["stream"] == true:
		err = t.readEvents(q.path, resp.Body, begin)
	default:
		if data, err = io.ReadAll(resp.Body); err == nil {
			t.take(q.path, "", data)
			t.ended = true
		}
	}
	t.broken, t.canceled = err, ctx.Err() != nil
	return t
}

// readEvents reads a stream of the door.
func (t *landed) readEvents(path string, r io.Reader, begin func()) error {
	lines, name := bufio.NewReader(r), ""
	var grew time.Time
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
		had := len(t.text)
		line = strings.TrimRight(line, "\r\n")
		event, isName := strings.CutPrefix(line, "event: ")
		data, isData := strings.CutPrefix(line, "data: ")
		switch {
		case isName:
			name = event
		case data == "[DONE]":
			t.end(path == completions || path == chat, "[DONE]")
		case isData:
			t.take(path, name, []byte(data))
			name = ""
		case line != "" && !strings.HasPrefix(line, ":"):
			t.odd = fmt.Sprintf("a line that is no event: %.100q", line)
		}
		if len(t.text) > had {
			begin()
			now := time.Now()
			if had > 0 {
				t.pause = max(t.pause, now.Sub(grew))
			}
			grew = now
		}
	}
}

// end notes that the stream is at its end; what follows is odd.
func (t *landed) end(right bool, what string) {
	if !right || t.ended {
		t.odd = "a stream does not end so: " + what
	}
	t.ended = true
}

// said is a body or an event of any of the four doors.
type said struct {
	Type    string          `json:"type"`
	Choices []wireChoice    `json:"choices"`
	Error   *saidError      `json:"error"`
	Usage   *saidUsage      `json:"usage"`
	Content []saidPart      `json:"content"` // messages
	Stop    string          `json:"stop_reason"`
	Delta   json.RawMessage `json:"delta"`
	Output  []struct {      // responses
		Content []saidPart `json:"content"`
	} `json:"output"`
	Status   string `json:"status"`
	Response *said  `json:"response"`
	Message  string `json:"-"` // of an error event of responses, where other events have an object
}

type saidPart struct {
	Text string `json:"text"`
}

type saidError struct {
	Message string          `json:"message"`
	Type    string          `json:"type"`
	Code    json.RawMessage `json:"code"`
}

type saidUsage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Input      int `json:"input_tokens"`
	Output     int `json:"output_tokens"`
	Read       int `json:"cache_read_input_tokens"`
	Written    int `json:"cache_creation_input_tokens"`
}

// take adds a body, or the event of that name.
func (t *landed) take(path, name string, data []byte) {
	var s said
	if err := json.Unmarshal(data, &s); err != nil {
		t.odd = fmt.Sprintf("%v in %.100q", err, data)
		return
	}
	if t.ended {
		t.odd = fmt.Sprintf("an event after the end: %.100q", data)
	}
	if s.Error != nil || s.Type == "error" {
		t.takeError(path, name, s.Error, data)
		return
	}
	switch path {
	case doorMessages:
		t.takeMessage(&s)
	case doorResponses:
		t.takeResponse(&s)
	default:
		t.takeChoices(s.Choices)
	}
	if u := s.Usage; u != nil {
		t.prompt, t.output = u.Prompt+u.Input+u.Read+u.Written, u.Completion+u.Output
	}
}

func (t *landed) takeChoices(choices []wireChoice) {
	for _, c := range choices {
		t.text += c.Text + c.Message.Content + c.Delta.Content
		t.ids = append(t.ids, c.IDs...)
		t.finish += c.Finish
	}
}

func (t *landed) takeMessage(s *said) {
	var delta struct {
		Text string `json:"text"`
		Stop string `json:"stop_reason"`
	}
	_ = json.Unmarshal(s.Delta, &delta) // other events have none
	t.text += delta.Text
	t.finish += s.Stop + delta.Stop
	for _, part := range s.Content {
		t.text += part.Text
	}
	if s.Type == "message_stop" {
		t.end(true, "")
	}
}

func (t *landed) takeResponse(s *said) {
	switch s.Type {
	case "response.output_text.delta":
		var text string
		if err := json.Unmarshal(s.Delta, &text); err != nil {
			t.odd = err.Error()
		}
		t.text += text
	case "response.completed", "response.incomplete":
		t.end(true, "")
		t.finish = s.Response.Status
		if u := s.Response.Usage; u != nil {
			t.prompt, t.output = u.Input, u.Output
		}
	case "":
		for _, o := range s.Output {
			for _, part := range o.Content {
				t.text += part.Text
			}
		}
		t.finish = s.Status
	}
}

// takeError takes an error body or an error event and holds it to the door's API:
//
//	completions, chat  {"error":{"message","type","code"}}, in a stream followed by [DONE]
//	messages           {"type":"error","error":{"type","message"}}, in a stream named error, the last event
//	responses          the first as a body; in a stream {"type":"error","message",…} named error, the last
func (t *landed) takeError(path, name string, e *saidError, data []byte) {
	event := t.status == http.StatusOK
	var flat saidError
	_ = json.Unmarshal(data, &flat)
	switch {
	case path == doorResponses && event:
		t.failure = flat.Message
		t.demand(flat.Type == "error" && name == "error", data)
	case e == nil:
		t.odd = fmt.Sprintf("an error without an error: %.200q", data)
	case path == doorMessages:
		t.failure = e.Message
		t.demand(flat.Type == "error" && e.Type != "" && name == map[bool]string{true: "error"}[event], data)
	default:
		t.failure = e.Message
		t.demand(e.Type != "" && len(e.Code) > 0 && name == "", data)
	}
	if t.failure == "" {
		t.odd = fmt.Sprintf("an error that says nothing: %.200q", data)
	}
	if path == doorMessages || path == doorResponses {
		t.ended = true
	}
}

func (t *landed) demand(holds bool, data []byte) {
	if !holds {
		t.odd = fmt.Sprintf("an error that is not as the API has it: %.200q", data)
	}
}

// verdict is what an answer is worth.
type worth int

const (
	exact worth = iota
	clearError
	wrong
)

// judgeLanded compares an answer with that of the engine which splits nothing. A connection that breaks off
// is a clear error only if cut allows it: a process that was killed can say nothing.
func judgeLanded(got, want *landed, cut bool) (worth, string) {
	switch {
	case want.status != http.StatusOK || want.broken != nil || want.odd != "" || want.failure != "":
		return wrong, fmt.Sprintf("the reference did not answer: %+v", *want)
	case got.odd != "":
		return wrong, got.odd
	case !strings.HasPrefix(want.text, got.text):
		return wrong, fmt.Sprintf("the text is %.80q, alone it is %.80q", got.text, want.text)
	case got.failure != "" &&
		(got.status == http.StatusOK || got.status >= 500 || got.status == http.StatusTooManyRequests) &&
		got.ended:
		return clearError, fmt.Sprintf("%d %s", got.status, got.failure)
	case got.failure != "":
		return wrong, fmt.Sprintf("status %d, ended %v: %s", got.status, got.ended, got.failure)
	case got.broken != nil && cut:
		return clearError, got.broken.Error()
	case got.broken != nil:
		return wrong, fmt.Sprintf("status %d, then %v", got.status, got.broken)
	case got.status != http.StatusOK:
		return wrong, fmt.Sprintf("status %d without an error", got.status)
	case !got.ended:
		return wrong, "a stream that just stops"
	}
	return compareWhole(got, want)
}

func compareWhole(got, want *landed) (worth, string) {
	switch {
	case got.text != want.text || !slices.Equal(got.ids, want.ids):
		return wrong, fmt.Sprintf("the text is %.80q, alone it is %.80q", got.text, want.text)
	case got.finish != want.finish:
		return wrong, fmt.Sprintf("it finished by %q, alone by %q", got.finish, want.finish)
	case got.prompt != want.prompt || got.output != want.output:
		return wrong, fmt.Sprintf("usage is %d and %d, alone %d and %d",
			got.prompt, got.output, want.prompt, want.output)
	}
	return exact, ""
}

// awaitFirst waits until a stream has begun to answer.
func awaitFirst(ctx context.Context, one *flight, limit time.Duration) error {
	return eventually(ctx, limit, func() error {
		select {
		case <-one.first:
			return nil
		default:
			return errors.New("a stream does not begin")
		}
	})
}
