// Package openai reads and edits OpenAI-shaped requests and answers by byte range: unedited parts stay equal
// byte for byte.
//
// A request is scanned once ([Parse]); its two legs are edits of the request ([Request.Edit],
// [Request.PrefillIDs], [Request.PrefillBody]). Answers and streams are cut into events ([Events]) and
// changed only where needed ([Kind.Find], [Scrub], [RewriteChunk]). Nothing here starts goroutines or keeps
// state between calls, and no error contains any part of a prompt.
package openai

import (
	"bytes"
	"strconv"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// Kind says which API a request came through.
type Kind uint8

// The kinds that are read. Everything else passes through [Sanitize].
const (
	Chat Kind = iota + 1
	Completions
	Messages  // Anthropic's
	Responses // without built-in tools and without what one engine keeps from earlier
)

// Path returns the engine's path for the kind.
func (k Kind) Path() string {
	return [...]string{"", "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"}[min(k,
		Responses)]
}

// Limits bounds what [Parse] and [Sanitize] accept; a zero field takes its default. The size of the body is
// the caller's to bound.
type Limits struct {
	Depth        int  // nesting of arrays and objects, default 128
	Fields       int  // members of the top-level object, default 1024
	PromptTokens int  // token ids in all prompts together, default no bound
	Prompts      int  // prompts of a batch that are split; a larger batch is Unsplittable, default 128
	Samples      int  // answers that a request may ask for (n, best_of), default no bound
	KVHints      bool // the client may send kv_hints
	NoPriority   bool // the client may not send the priority that engines heed
}

// Request is a client's request after one scan. It is read-only once parsed and safe for concurrent use; its
// slices point into Raw.
//
// Long: a field a fact that the scan found.
type Request struct {
	Kind            Kind
	Raw             []byte // the body without transfer params; shares the caller's memory when nothing had to go
	Model           string // as the client named it, "" when it did not
	Stream          bool
	IncludeUsage    bool // stream_options.include_usage
	ContinuousUsage bool // stream_options.continuous_usage_stats
	// It is a stream of one answer, the client did not ask for usage, and the engine can be asked for usage:
	// [Edit.AskUsage].
	MayAskUsage bool
	// New tokens at most, 0 when unlimited. On chat max_completion_tokens wins. A completion without a limit
	// gets 16, as in vLLM. For responses it is max_output_tokens.
	MaxTokens int
	N         int // sequences, at least 1
	CacheSalt string
	Prompts   []Prompt // of a completion, in order; nil on chat and for a batch above Limits.Prompts
	Batched   bool     // more than one prompt
	InBatch   int      // number of prompts in a list; also where Prompts is nil
	// The engine computes the whole prompt, including cached blocks: its answer contains something about each
	// token of the prompt.
	Uncached     bool
	Unsplittable string // why the request must go whole to one replica, "" when it may be split
	Acts         bool   // its engine may run tools for it, or continue it after the client has left
	Removed      int    // transfer params that the client sent and Parse took out

	Messages   []byte // raw JSON array of a chat or of messages; the raw input of responses
	Tools      bool   // tools or functions that are not empty
	Multimodal bool   // a content part that is not text
	// A field other than messages takes part in making the prompt (tools, template, its arguments, documents,
	// ...).
	Templated bool
	Hints     Hints

	fields []field // members of the top-level object of Raw
	object span    // the top-level object with its braces

	fewFields [16]field // memory of fields, enough for most requests
	onePrompt [1]Prompt // memory of Prompts, which is one nearly always
}

// Prompt is one prompt of a completion: text or token ids, never both.
type Prompt struct {
	Text   []byte   // raw JSON string with its quotes, nil when the prompt is ids
	IDs    []uint32 // token ids, nil when the prompt is text
	IDsRaw []byte   // a JSON array of the ids, without points and exponents
}

// BadRequest is a body that no engine should see. Message never quotes the body.
type BadRequest struct {
	Message string
	Param   string // the field at fault, "" when it is the body as a whole
}

func (e *BadRequest) Error() string { return e.Message }

// Append appends the answer for the client, in vLLM's shape with code 400.
func (e *BadRequest) Append(dst []byte) []byte {
	return AppendError(dst, e.Message, "BadRequestError", e.Param, 400)
}

// The functions below read members of a request on demand, because people want to see the values. The values
// decide nothing, except that tier and priority may choose a class: engines judge these members themselves.

// Number returns a member that is a number.
func (r *Request) Number(name string) (v float64, ok bool) {
	v, err := strconv.ParseFloat(string(r.member(name)), 64)
	return v, err == nil
}

// Tier returns the service_tier; "" where there is none, or a longer one than longest bytes.
func (r *Request) Tier(longest int) string {
	if value := r.member("service_tier"); len(value) > 1 && value[0] == '"' && len(value) <= longest+2 {
		return rawjson.Text(value)
	}
	return ""
}

// Priority returns the priority of the body, the smallest first: the one for vLLM, else the one for Dynamo
// (nvext.agent_hints.priority), where the largest is first. It is 0 where there is no whole number.
func (r *Request) Priority() (p int) {
	if p, ok := whole(r.member("priority")); ok {
		return p
	}
	if nvext := r.member("nvext"); len(nvext) > 0 {
		inObject(nvext, "agent_hints", func(hints []byte) {
			p = 0
			inObject(hints, "priority", func(value []byte) {
				own, _ := whole(value)
				p = -max(own, -1<<53) // the smallest integer has no opposite
			})
		})
	}
	return p
}

// Limits of the reported stop texts.
const (
	mostStops = 16
	longStop  = 64
)

// StopSequences returns the texts that end the answer, where they are few and short.
func (r *Request) StopSequences() []string {
	name := "stop"
	if r.Kind == Messages {
		name = "stop_sequences"
	}
	value := r.member(name)
	if len(value) > 0 && value[0] == '"' {
		return shortTexts(nil, value)
	}
	var stops []string
	s := scanner(value)
	if s.Peek() != '[' {
		return nil
	}
	for range s.Elements() {
		if stops = shortTexts(stops, s.Value()); len(stops) > mostStops {
			return nil
		}
	}
	return stops
}

func shortTexts(list []string, value []byte) []string {
	if len(value) > 0 && value[0] == '"' {
		if text := rawjson.Text(value); len(text) <= longStop {
			return append(list, text)
		}
	}
	return list
}

// Names returns the id of an answer and the model that it names: of a whole answer, or of the data of an
// event.
func Names(data []byte) (id, model string) {
	s := scanner(data)
	if s.Peek() != '{' {
		return "", ""
	}
	for key := range s.Members() {
		value := s.Value()
		switch {
		case len(value) == 0:
			return id, model
		case rawjson.Equal(key, "id") && value[0] == '"':
			id = rawjson.Text(value)
		case rawjson.Equal(key, "model") && value[0] == '"':
			model = rawjson.Text(value)
		case (rawjson.Equal(key, "message") || rawjson.Equal(key, "response")) && value[0] == '{':
			return Names(value) // an event of messages or of responses that opens the stream
		}
	}
	return id, model
}

// PromptText appends to dst, in pieces of Raw, the text that prompt i is made of. Prompts that begin alike
// have leading bytes in common. Therefore what a template makes of tools stands before the messages, and the
// messages lack the bracket at their end. A conversation that went on thus shares the bytes of its earlier
// turn. It appends nothing for a prompt of token ids, and for i without a prompt in a completion. A chat has
// one prompt.
func (r *Request) PromptText(dst [][]byte, i int) [][]byte {
	if r.Kind == Completions {
		if i < len(r.Prompts) && r.Prompts[i].Text != nil {
			quoted := r.Prompts[i].Text
			dst = append(dst, quoted[1:len(quoted)-1])
		}
		return dst
	}
	if r.Templated {
		for _, f := range r.fields {
			if key := f.key.of(r.Raw); templates(rawjson.Name(key)) {
				dst = append(dst, key, f.value.of(r.Raw))
			}
		}
	}
	return append(dst, bytes.TrimRight(bytes.TrimSuffix(bytes.TrimSpace(r.Messages), []byte("]")), " \t\r\n"))
}

// templates reports whether a field of a chat other than messages takes part in the beginning of the prompt.
func templates(name []byte) bool {
	switch string(name) {
	case "tools", "functions", "documents", "chat_template", "chat_template_kwargs", "tool_choice", "system",
		"instructions":
		return true
	}
	return false
}

// Find walks over data, an answer of the API or a whole event of one. In data that is not JSON it finds only
// the parts before the fault.
func (k Kind) Find(data []byte) Said {
	at := payload(data)
	s := rawjson.Scanner{Data: data[:at.end], Pos: at.start, Max: answerDepth}
	if s.Peek() != '{' {
		return Said{data: data}
	}
	f := Said{data: data}
	f.walk(&s, k.holds(), false)
	s.End()
	f.whole = s.Err() == nil
	return f
}

// holds is the name of the member with the generated output.
func (k Kind) holds() string {
	switch k {
	case Messages:
		return "content"
	case Responses:
		return "output"
	}
	return "choices"
}
