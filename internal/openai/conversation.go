package openai

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// Bodies of /v1/messages and /v1/responses. The parser refuses only a body that is no JSON, or no text. A
// field of a wrong type makes the request unsplittable, and the engine reports the error in the words of its
// API.

// readConversation takes note of a member of such a request. Fields that the API does not have are the
// engine's to ignore.
func (p *parser) readConversation(name, value []byte) {
	r := p.req
	switch string(name) {
	case "model":
		r.Model = p.textOr(name, value)
	case "stream":
		v, ok := truth(value)
		r.Stream = v
		p.unsplittableIf(!ok, "stream is no boolean")
	case "tools":
		r.Tools, r.Templated = !isEmpty(value), true
		p.tools(value)
	case "cache_salt":
		salt := p.textOr(name, value)
		p.unsplittableIf(!isNull(value) && (salt == "" || strings.ContainsRune(salt, utf8.RuneError)),
			"a salt that no engine takes")
		r.CacheSalt = salt
	case "request_id", "stop", "stop_sequences":
		p.encodable(string(name), value)
	case "tool_choice", "chat_template_kwargs":
		r.Templated = r.Templated || !isEmpty(value)
	default:
		if r.Kind == Messages {
			p.readMessages(name, value)
		} else {
			p.readResponses(name, value)
		}
	}
}

func (p *parser) readMessages(name, value []byte) {
	switch string(name) {
	case "max_tokens":
		p.bound(name, value)
	case "system":
		p.req.Templated = true
		p.unsplittableIf(!isEmpty(value) && !onlyText(value), "content that is not text")
	case "mcp_servers", "container":
		p.actsIf(!isEmpty(value), "built-in tools")
	}
}

func (p *parser) readResponses(name, value []byte) {
	switch string(name) {
	case "max_output_tokens":
		p.bound(name, value)
	case "instructions":
		p.req.Templated = true
		p.textOr(name, value)
	case "previous_response_id", "previous_response", "previous_input_messages":
		p.unsplittableIf(!isNull(value), string(name))
	case "conversation":
		p.actsIf(!isNull(value), string(name))
	case "background":
		p.actsIf(!isEmpty(value), string(name))
	case "enable_response_messages":
		p.unsplittableIf(!isEmpty(value), string(name))
	case "prompt":
		p.unsplittableIf(!isNull(value), "a prompt template")
	case "truncation": // ids that are reused are not truncated
		p.unsplittableIf(!isNull(value) && !rawjson.Equal(value, "disabled"), "truncation")
	}
}

func (p *parser) unsplittableIf(yes bool, reason string) {
	if yes {
		p.unsplittable(reason)
	}
}

// actsIf is unsplittableIf where its engine may do more for the request than compute an answer.
func (p *parser) actsIf(yes bool, reason string) {
	p.req.Acts = p.req.Acts || yes
	p.unsplittableIf(yes, reason)
}

// textOr reads a string; null is "".
func (p *parser) textOr(name, value []byte) string {
	if isNull(value) {
		return ""
	}
	if value[0] != '"' {
		p.unsplittable(string(name) + " is no string")
		return ""
	}
	return rawjson.Text(value)
}

// bound reads the bound of new tokens.
func (p *parser) bound(name, value []byte) {
	if isNull(value) {
		p.maxTokens = number{null: true}
		return
	}
	v, ok := whole(value)
	p.unsplittableIf(!ok, string(name)+" is no integer")
	p.maxTokens = number{value: v, set: ok}
}

// tools looks for one that the engine would run by itself: each round is a request of its own there, and
// would repeat the transfer params.
func (p *parser) tools(value []byte) {
	if isEmpty(value) {
		return
	}
	if value[0] != '[' {
		p.actsIf(true, "tools is no array")
		return
	}
	s := scanner(value)
	for range s.Elements() {
		if s.Peek() != '{' {
			p.actsIf(true, "a tool is no object")
			return
		}
		kind := ""
		for key := range s.Members() {
			if v := s.Value(); rawjson.Equal(key, "type") {
				kind = rawjson.Text(v)
			}
		}
		own := kind == "function" || p.req.Kind == Messages && (kind == "" || kind == "custom")
		p.actsIf(!own, "built-in tools")
	}
	p.actsIf(s.Err() != nil, "tools nested too deep")
}

// conversation walks messages, or the input of responses, to learn whether there is anything but text in
// them.
func (p *parser) conversation() {
	s := &p.scan
	start := s.Pos
	switch s.Peek() {
	case '"':
		p.unsplittableIf(p.req.Kind == Messages, "messages is no array")
		s.Skip()
	case '[':
		n := 0
		for range s.Elements() {
			n++
			p.turn()
		}
		p.unsplittableIf(n == 0, "no messages")
	default:
		s.Skip()
		p.unsplittable("no messages")
	}
	if s.Err() == nil {
		p.req.Messages = s.Data[start:s.Pos]
	}
}

// turn walks one message, or one item of input.
func (p *parser) turn() {
	s := &p.scan
	if s.Peek() != '{' {
		s.Skip()
		p.notText()
		return
	}
	kind := "message"
	for key := range s.Members() {
		value := s.Value()
		if s.Err() != nil {
			return
		}
		switch string(rawjson.Name(key)) {
		case "type":
			kind = rawjson.Text(value)
		case "content", "output", "summary":
			if !isNull(value) && !onlyText(value) {
				p.notText()
			}
		}
	}
	switch kind {
	case "message", "function_call", "function_call_output", "reasoning":
	default:
		p.notText()
	}
}

func (p *parser) notText() {
	p.req.Multimodal = true
	p.unsplittable("content that is not text")
}

// onlyText reports whether content is a string, or blocks that are text or made into text: what a template
// may see without loading anything.
func onlyText(content []byte) bool {
	if len(content) == 0 || content[0] != '[' {
		return len(content) > 0 && content[0] == '"'
	}
	s := scanner(content)
	for range s.Elements() {
		if s.Peek() == '"' {
			s.Skip()
			continue
		}
		if s.Peek() != '{' || !textBlock(&s) {
			return false
		}
	}
	return s.Err() == nil
}

func textBlock(s *rawjson.Scanner) bool {
	kind, inner := "", true
	for key := range s.Members() {
		value := s.Value()
		if s.Err() != nil {
			return false
		}
		switch string(rawjson.Name(key)) {
		case "type":
			kind = rawjson.Text(value)
		case "content": // of a tool's result
			inner = isNull(value) || onlyText(value)
		}
	}
	switch kind {
	case "text", "input_text", "output_text", "refusal", "summary_text", "reasoning_text", "thinking",
		"redacted_thinking", "tool_use", "tool_result":
		return inner
	}
	return false
}

// eventType returns the type of an event of the conversation APIs. It is "" for the other APIs: their events
// have no type.
func (k Kind) eventType(data []byte) string {
	if k != Messages && k != Responses {
		return ""
	}
	at, ok := member(data, "type", '"')
	if !ok {
		return ""
	}
	return rawjson.Text(at.of(data))
}

// Opens reports whether an event opens a stream of the kind's API, or keeps the stream open, before anything
// is known to be generated. data is the event's JSON.
func (k Kind) Opens(data []byte) bool {
	switch k.eventType(data) {
	case "message_start", "ping":
		return k == Messages
	case "response.created", "response.queued", "response.in_progress":
		return k == Responses
	}
	return false
}

// Ends reports whether data (JSON of an event) is the last of a stream of the kind's API. Streams of
// completions and chats end with [DONE] instead.
func (k Kind) Ends(data []byte) bool {
	switch k.eventType(data) {
	case "message_stop":
		return k == Messages
	case "response.completed", "response.incomplete", "response.failed", "response.cancelled":
		return k == Responses
	}
	return false
}

// MayEndAt returns where in chunk the last event of the stream may be, or -1. Most chunks then need not be
// read. chunk is a part of a stream of the kind's API.
func (k Kind) MayEndAt(chunk []byte) int {
	switch k {
	case Messages:
		return bytes.Index(chunk, messageStop)
	case Responses:
		for at := 0; ; {
			i := bytes.Index(chunk[at:], responseEvent)
			if i < 0 {
				return -1
			}
			at += i
			switch rest := chunk[at+len(responseEvent):]; {
			case bytes.HasPrefix(rest, []byte("c")), bytes.HasPrefix(rest, []byte("incomplete")),
				bytes.HasPrefix(rest, []byte("failed")):
				return at
			}
			at += len(responseEvent)
		}
	}
	return -1
}

var (
	messageStop   = []byte("message_stop")
	responseEvent = []byte(`"response.`)
)
