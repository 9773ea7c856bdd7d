package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// The APIs with named events in their streams. Not streamed, an answer is one object with the same parts.
const (
	responses = "/v1/responses"
	messages  = "/v1/messages"
)

// named is an event of such a stream, or a whole answer.
type named struct {
	Type     string          `json:"type"`
	Sequence *int            `json:"sequence_number"` // only responses
	Error    json.RawMessage `json:"error"`
	Response *named          `json:"response"` // only responses: the answer so far
	Message  *named          `json:"message"`  // only messages: the same
	Delta    json.RawMessage `json:"delta"`
	Logprobs []wireLogprob   `json:"logprobs"` // of a delta of responses

	// Fields of a whole answer:
	ID         string       `json:"id"`
	Usage      *namedUsage  `json:"usage"`
	Status     string       `json:"status"`
	Incomplete *incomplete  `json:"incomplete_details"`
	Output     []namedBlock `json:"output"`
	Content    []namedBlock `json:"content"`
	StopReason string       `json:"stop_reason"`
	Sequences  string       `json:"stop_sequence"`
}

type incomplete struct {
	Reason string `json:"reason"`
}

type namedBlock struct {
	Text     string        `json:"text"`
	Content  []namedBlock  `json:"content"` // of an item of output
	Logprobs []wireLogprob `json:"logprobs"`
}

type wireLogprob struct {
	Token string  `json:"token"`
	Value float64 `json:"logprob"`
}

// namedUsage is the usage of both APIs. Messages count tokens read from and written to the cache beside
// input_tokens.
type namedUsage struct {
	Input   int `json:"input_tokens"`
	Output  int `json:"output_tokens"`
	Read    int `json:"cache_read_input_tokens"`
	Written int `json:"cache_creation_input_tokens"`
	Details struct {
		Cached int `json:"cached_tokens"`
	} `json:"input_tokens_details"`
}

// readWhole reads an answer that is not streamed.
func (a *answer) readWhole(text []byte) error {
	var n named
	if err := json.Unmarshal(text, &n); err != nil {
		return fmt.Errorf("%w: %.200s", err, text)
	}
	a.choices = []choice{{}}
	a.whole(&n, true)
	return a.keep(text)
}

// whole reads the fields of a whole answer. It skips the text, because a stream has delivered it before.
func (a *answer) whole(n *named, withText bool) {
	c := &a.choices[0]
	if u := n.Usage; u != nil {
		prompt := u.Input + u.Read + u.Written
		a.usage, a.cached = usage{prompt, u.Output, prompt + u.Output}, u.Read+u.Details.Cached
	}
	if n.Status != "" {
		c.finish = n.Status
	}
	if n.Incomplete != nil {
		c.finish += ", " + n.Incomplete.Reason
	}
	c.finish, c.stop = c.finish+n.StopReason, c.stop+n.Sequences
	if !withText {
		return
	}
	for _, item := range append(n.Output, namedBlock{Content: n.Content}) {
		for _, b := range item.Content {
			c.text += b.Text
			c.tell(b.Logprobs)
		}
	}
}

func (c *choice) tell(of []wireLogprob) {
	for _, l := range of {
		c.logprobs = append(c.logprobs, logprob{l.Token, l.Value})
	}
}

// keep adds all parts of an event or an answer that must be equal on every server.
func (a *answer) keep(data []byte) error {
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	text, err := json.Marshal(without(v))
	a.rest += string(text) + "\n"
	return err
}

// without is v without the parts that may differ between equal answers, and without the parts that are
// compared separately.
func without(v any) any {
	switch x := v.(type) {
	case map[string]any:
		for _, key := range []string{
			"id", "item_id", "created_at", "completed_at", "sequence_number", "usage", "logprobs",
		} {
			delete(x, key)
		}
		for key, value := range x {
			x[key] = without(value)
		}
	case []any:
		for i, value := range x {
			x[i] = without(value)
		}
	}
	return v
}

// events reads a stream of named events.
type events struct {
	of    *answer
	names []string
	ids   map[string]bool
	count int
	ended bool
}

// readEvents reads one event after another. Each has its name twice. Responses number their events from 0,
// and the last event marks the end.
func (a *answer) readEvents(r io.Reader) error {
	a.choices = []choice{{}}
	e := events{of: a, ids: map[string]bool{}}
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, 16<<20)
	name := ""
	for scanner.Scan() {
		line := scanner.Bytes()
		if err := e.line(line, &name); err != nil {
			return err
		}
	}
	a.events = strings.Join(e.names, " ")
	switch {
	case !e.ended:
		return errors.Join(fmt.Errorf("the stream ended without its last event: %s", a.events), scanner.Err())
	case len(e.ids) != 1:
		return fmt.Errorf("the events of a stream have %d ids", len(e.ids))
	}
	return nil
}

func (e *events) line(line []byte, name *string) error {
	data, isData := bytes.CutPrefix(line, []byte("data: "))
	called, isName := bytes.CutPrefix(line, []byte("event: "))
	switch {
	case len(line) == 0:
		return nil
	case e.ended:
		return fmt.Errorf("after the last event of a stream: %q", line)
	case isName:
		*name = string(called)
		return nil
	case isData:
		return e.event(*name, data)
	}
	return fmt.Errorf("the stream has a line that is no event: %q", line)
}

func (e *events) event(name string, data []byte) error {
	if err := shows(data); err != nil {
		return err
	}
	var n named
	if err := json.Unmarshal(data, &n); err != nil {
		return fmt.Errorf("%w: %.200s", err, data)
	}
	switch {
	case n.Type == "error" || n.Type == "response.failed" || len(n.Error) > 0 && string(n.Error) != "null":
		return fmt.Errorf("an error inside a 200: %.300s", data)
	case n.Type != name:
		return fmt.Errorf("the event %q has the type %q", name, n.Type)
	case n.Sequence != nil && *n.Sequence != e.count:
		return fmt.Errorf("event %d of a stream has the number %d", e.count, *n.Sequence)
	}
	e.count++
	if text, ok := textDelta(&n); ok {
		e.of.choices[0].text += text
		e.of.choices[0].tell(n.Logprobs)
		if len(e.names) == 0 || e.names[len(e.names)-1] != name {
			e.names = append(e.names, name)
		}
		return nil
	}
	e.names = append(e.names, name)
	e.inside(&n)
	return e.of.keep(data)
}

// inside reads the fields of an event that describe the whole answer.
func (e *events) inside(n *named) {
	for _, whole := range []*named{n.Response, n.Message} {
		if whole != nil {
			e.ids[whole.ID] = true
			e.of.choices[0].finish = ""
			e.of.whole(whole, false)
		}
	}
	switch n.Type {
	case "message_delta":
		var d named
		_ = json.Unmarshal(n.Delta, &d) // keep has seen that it is JSON
		d.Usage = n.Usage
		e.of.whole(&d, false)
	case "message_stop", "response.completed", "response.incomplete":
		e.ended = true
	}
}

// textDelta is the text that an event adds to the answer, if the event does nothing else.
func textDelta(n *named) (text string, ok bool) {
	switch n.Type {
	case "response.output_text.delta":
		err := json.Unmarshal(n.Delta, &text)
		return text, err == nil
	case "content_block_delta":
		var d struct {
			Type, Text string
		}
		err := json.Unmarshal(n.Delta, &d)
		return d.Text, err == nil && d.Type == "text_delta"
	}
	return "", false
}
