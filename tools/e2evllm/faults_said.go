package main

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// said is a body or an event of any of the four APIs.
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
	Message  string `json:"-"` // of an error event of responses; other events have an object
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

// take adds a body, or the event called name.
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
	case messagesPath:
		t.takeMessage(&s)
	case responsesPath:
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

// takeError reads an error body or an error event and checks it against its API:
//
//	completions, chat  {"error":{"message","type","code"}}, in a stream followed by [DONE]
//	messages           {"type":"error","error":{"type","message"}}, in a stream named error, the last event
//	responses          the first as a body; in a stream {"type":"error","message",…} named error, the last
func (t *landed) takeError(path, name string, e *saidError, data []byte) {
	event := t.status == http.StatusOK
	var flat saidError
	_ = json.Unmarshal(data, &flat)
	switch {
	case path == responsesPath && event:
		t.failure = flat.Message
		t.demand(flat.Type == "error" && name == "error", data)
	case e == nil:
		t.odd = fmt.Sprintf("an error body without the field error: %.200q", data)
	case path == messagesPath:
		t.failure = e.Message
		t.demand(flat.Type == "error" && e.Type != "" && name == map[bool]string{true: "error"}[event], data)
	default:
		t.failure = e.Message
		t.demand(e.Type != "" && len(e.Code) > 0 && name == "", data)
	}
	if t.failure == "" {
		t.odd = fmt.Sprintf("an error without a message: %.200q", data)
	}
	if path == messagesPath || path == responsesPath {
		t.ended = true
	}
}

func (t *landed) demand(holds bool, data []byte) {
	if !holds {
		t.odd = fmt.Sprintf("an error that violates the API's format: %.200q", data)
	}
}
