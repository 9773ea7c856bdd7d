//go:build linux

package main

import "encoding/json"

const (
	messages  = "/v1/messages"
	responses = "/v1/responses"
)

func (w *writer) message(maxTokens int, system string, turns ...map[string]string) question {
	return question{messages, map[string]any{
		"model": "sim", "system": system, "messages": turns, "max_tokens": maxTokens, "temperature": 0,
	}}
}

func (w *writer) response(maxTokens int, input any) question {
	return question{
		responses, map[string]any{"model": "sim", "input": input, "max_output_tokens": maxTokens, "temperature": 0},
	}
}

// otherAPIs are requests of every form to /v1/messages and /v1/responses.
func (w *writer) otherAPIs(n int) []question {
	block := []map[string]string{{"type": "text", "text": w.text()}, {"type": "text", "text": " and more"}}
	return []question{
		w.message(n, w.text(), message("user", " what is a lease")),
		w.message(n, " short", message("user", w.text()), message("assistant", " the router"),
			message("user", " and then")),
		w.message(n, w.text(), message("user", w.text())).with("stop_sequences", []string{" the"}),
		w.message(n, " s").with("messages", []map[string]any{{"role": "user", "content": block}}),
		w.message(n, w.text(), message("user", w.text())).with("cache_salt", "tenant"),
		w.response(n, w.text()),
		w.response(n, " a"),
		w.response(n, w.text()).with("instructions", w.text()).with("cache_salt", "tenant"),
		w.response(n, []map[string]string{
			message("user", w.text()), message("assistant", " the router"), message("user", " and then"),
		}).with("store", false),
	}
}

// otherPart is a whole body or an event of /v1/messages and /v1/responses.
type otherPart struct {
	Type    string
	Status  string
	Stop    string `json:"stop_reason"`
	Content []textPart
	Output  []struct{ Content []textPart }
	Delta   json.RawMessage
	Usage   *otherUsage
	Reply   *struct {
		Status string
		Usage  *otherUsage
	} `json:"response"`
}

type textPart struct{ Text string }

type otherUsage struct {
	Input   int `json:"input_tokens"`
	Output  int `json:"output_tokens"`
	Written int `json:"cache_creation_input_tokens"`
	Read    int `json:"cache_read_input_tokens"`
}

// takeOther reads the body of an answer of /v1/messages or /v1/responses.
func (r *reply) takeOther(data []byte) error {
	var p otherPart
	if err := json.Unmarshal(data, &p); err != nil || p.Usage != nil && p.Usage.Input == 0 && p.Type == "" {
		return nil // a chat or a completion
	}
	switch p.Type {
	case "message":
		r.other(p.Stop, p.Content...)
	case "content_block_delta":
		var part textPart
		if err := json.Unmarshal(p.Delta, &part); err != nil {
			return err
		}
		r.other("", part)
	case "message_delta":
		var d struct {
			Stop string `json:"stop_reason"`
		}
		if err := json.Unmarshal(p.Delta, &d); err != nil {
			return err
		}
		r.other(d.Stop)
	case "response.output_text.delta":
		var text string
		if err := json.Unmarshal(p.Delta, &text); err != nil {
			return err
		}
		r.other("", textPart{text})
	case "message_stop":
		r.done = true
	case "response.completed":
		r.done, p.Usage = true, p.Reply.Usage
		r.other(p.Reply.Status)
	case "":
		if p.Status == "" {
			return nil
		}
		for _, o := range p.Output {
			r.other("", o.Content...)
		}
		r.other(p.Status)
	}
	if u := p.Usage; u != nil {
		r.usage = &tokenUsage{Prompt: u.Input + u.Written + u.Read, Completion: u.Output}
	}
	return nil
}

// other appends to the only choice.
func (r *reply) other(finish string, parts ...textPart) {
	if len(r.texts) == 0 {
		r.texts, r.finish = []string{""}, []string{""}
	}
	r.finish[0] += finish
	for _, part := range parts {
		r.texts[0] += part.Text
	}
}

// wantOtherAPIs checks that requests to the other APIs were split. Without render, no such request must be
// split.
func (f *fleet) wantOtherAPIs(render bool) {
	f.t.Helper()
	for _, q := range newWriter(9).otherAPIs(7) { // checks that the compared fields are really read
		for _, q := range []question{q, q.streamed()} {
			if r := f.check(q); len(r.texts) != 1 || r.texts[0] == "" || r.usage == nil || r.usage.Prompt == 0 ||
				r.finish[0] == "" {
				f.t.Errorf("%v: %+v", q, r)
			}
		}
	}
	for _, path := range []string{messages, responses} {
		split := f.metric("tandem_requests_total", `path="`+path+`"`, `mode="split"`)
		whole := f.metric("tandem_requests_total", `path="`+path+`"`, `mode="unsplit"`)
		f.t.Logf("%s: %v split, %v unsplit", path, split, whole)
		if render && (split < 40 || whole > 0) || !render && (whole < 40 || split > 0) {
			f.t.Errorf("%s: %v split, %v unsplit, with render %v", path, split, whole, render)
		}
	}
}
