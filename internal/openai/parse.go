package openai

import (
	"bytes"
	"errors"
	"unicode/utf8"

	"github.com/tandem-router/tandem/internal/rawjson"
)

type span struct{ start, end int }

func (s span) of(b []byte) []byte { return b[s.start:s.end] }

// field is one member of the top-level object; key includes the quotes.
type field struct{ key, value span }

func (l Limits) fields() int {
	if l.Fields > 0 {
		return l.Fields
	}
	return 1024
}

func (l Limits) prompts() int {
	if l.Prompts > 0 {
		return l.Prompts
	}
	return 128
}

func (l Limits) cleaner(body []byte) cleaner {
	return cleaner{scan: rawjson.Scanner{Data: body, Max: l.Depth}, lim: l}
}

// Parse reads body. The result keeps body, which must not be changed afterwards. Errors are *[BadRequest].
//
// Parse removes transfer params, kv_hints without [Limits.KVHints], and the priority with
// [Limits.NoPriority], from every body: [Request.Raw] was scanned and has none. Parse reads values as laxly
// as vLLM ("n": "2" is two); the last of several members of one name counts, as in Python.
func Parse(kind Kind, body []byte, lim Limits) (*Request, error) {
	if !utf8.Valid(body) {
		return nil, &BadRequest{Message: "the body is not valid UTF-8"}
	}
	removed := 0
	for {
		p := parser{cleaner: lim.cleaner(body)}
		p.req = &Request{Kind: kind, Raw: body, N: 1}
		p.body()
		if err := p.result(); err != nil {
			return nil, err
		}
		if len(p.cuts) == 0 {
			p.req.Removed = removed
			return p.req, nil
		}
		removed += len(p.cuts)
		body = p.cut()
	}
}

// parser walks the top-level object once.
type parser struct {
	cleaner
	req *Request
	bad *BadRequest
}

func (p *parser) result() error {
	if err := p.scan.Err(); err != nil {
		return syntax(err)
	}
	if p.bad == nil {
		p.finish()
	}
	if p.bad != nil {
		return p.bad
	}
	return nil
}

func syntax(err error) *BadRequest {
	syn, ok := errors.AsType[*rawjson.SyntaxError](err)
	switch {
	case !ok:
		return &BadRequest{Message: "invalid JSON"}
	case syn.Reason == rawjson.NotAnID:
		return &BadRequest{Message: badPrompt, Param: "prompt"}
	}
	return &BadRequest{Message: syn.Error()}
}

// body walks the members. A member is first walked (and cleaned), then read.
func (p *parser) body() {
	s := &p.scan
	if c := s.Peek(); c != '{' && s.Pos < len(s.Data) {
		p.refuse("", "the body must be a JSON object")
		return
	}
	p.req.object.start = s.Pos
	p.req.fields = p.req.fewFields[:0]
	p.object(func(key []byte) {
		if len(p.req.fields) >= p.lim.fields() {
			s.Fail("too many fields")
			return
		}
		at := s.KeyAt(key)
		s.Peek()
		f := field{key: span{at, at + len(key)}, value: span{start: s.Pos}}
		p.member(rawjson.Name(key))
		f.value.end = s.Pos
		p.req.fields = append(p.req.fields, f)
	})
	p.req.object.end = s.Pos
	s.End()
}

func (p *parser) refuse(param, message string) {
	if p.bad == nil {
		p.bad = &BadRequest{Message: message, Param: param}
	}
}

func (p *parser) member(name []byte) {
	switch kind := p.req.Kind; {
	case kind == Completions && string(name) == "prompt":
		p.prompt()
	case kind == Chat && string(name) == "messages":
		p.messages()
	case kind == Messages && string(name) == "messages", kind == Responses && string(name) == "input":
		p.conversation()
	case opaque(name):
		if value := p.scan.Value(); value != nil {
			p.hint(name, value)
			p.readOpaque(name, value)
		}
	default:
		start := p.scan.Pos
		p.value(false)
		if p.scan.Err() == nil {
			p.hint(name, p.scan.Data[start:p.scan.Pos])
			p.read(name, p.scan.Data[start:p.scan.Pos])
		}
	}
}

// unsplittable notes why the request cannot be split; the first reason stays.
func (p *parser) unsplittable(reason string) {
	if p.req.Unsplittable == "" {
		p.req.Unsplittable = reason
	}
}

// finish checks what no single member tells.
func (p *parser) finish() {
	r := p.req
	switch {
	case (r.Kind == Messages || r.Kind == Responses) && r.Messages == nil:
		p.unsplittable("no prompt")
	case r.Kind == Chat && r.Messages == nil:
		p.refuse("messages", "Field required: messages")
	case r.Kind == Completions && !r.Batched && r.Prompts == nil && !p.embeds:
		p.refuse("prompt", "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)")
	}
	if r.Batched && r.ContinuousUsage {
		p.unsplittable("continuous usage of a batch")
	}
	if p.options && !r.Stream {
		p.unsplittable("stream_options without stream")
	}
	// vLLM makes prompt_logprobs from these members, on chats always: skip_reading_prefix_cache of
	// sampling_params.py.
	if p.echo && (p.logprobs || r.Kind == Chat) {
		r.Uncached = true
	}
	p.limit()
	r.MayAskUsage = p.mayAskUsage()
}

// limit settles the bound of new tokens.
func (p *parser) limit() {
	limit := p.maxTokens
	if p.req.Kind == Chat && p.maxCompletion.set {
		limit = p.maxCompletion
	}
	switch {
	case limit.set && limit.value < 1:
		p.unsplittable("max_tokens < 1")
	case limit.set:
		p.req.MaxTokens = limit.value
	case p.req.Kind == Completions && !limit.null:
		p.req.MaxTokens = 16
	}
}

// Sanitize returns body without what [Parse] removes, for the paths that are passed through; body itself when
// there were none. Any valid JSON is accepted. Errors are *[BadRequest].
func Sanitize(body []byte, lim Limits) ([]byte, error) {
	if !utf8.Valid(body) {
		return nil, &BadRequest{Message: "the body is not valid UTF-8"}
	}
	for {
		c := lim.cleaner(body)
		c.value(true)
		if c.scan.End(); c.scan.Err() != nil {
			return nil, syntax(c.scan.Err())
		}
		if len(c.cuts) == 0 {
			return body, nil
		}
		body = c.cut()
	}
}

// Glance is the few facts that are read from a request that is passed through.
type Glance struct {
	Model   string
	Stream  bool
	Samples int // answers that it asks for, at least 1
}

// Peek reads of any JSON object what routing needs, as far as it can.
func Peek(body []byte) Glance {
	g := Glance{Samples: 1}
	s := rawjson.Scanner{Data: body}
	for key := range s.Members() {
		switch value := s.Value(); {
		case rawjson.Equal(key, "model") && bytes.HasPrefix(value, []byte{'"'}):
			g.Model = rawjson.Text(value)
		case rawjson.Equal(key, "stream"):
			g.Stream, _ = truth(value)
		case rawjson.Equal(key, "sampling_params") && bytes.HasPrefix(value, []byte{'{'}):
			g.Samples = max(g.Samples, Peek(value).Samples)
		case rawjson.Equal(key, "n"), rawjson.Equal(key, "best_of"):
			n, _ := whole(value)
			g.Samples = max(g.Samples, min(n, 1<<16))
		}
	}
	return g
}

// Hints are the hints in a body at its answer's length, besides its limit. No hint makes the router refuse a
// request. The hints go to the engine unchanged, and the engine ignores unknown ones (vLLM's OpenAIBaseModel
// allows all fields).
type Hints struct {
	// Tokens that the client expects of an answer, 0 where it does not say: nvext.agent_hints.osl, as in
	// Dynamo.
	Output     int
	Structured bool // the answer has to keep to a form: response_format, structured_outputs, guided_…
	Stops      bool // words of the client's end it: stop, stop_sequences
}

// hint takes note of a member that is one.
func (p *parser) hint(name, value []byte) {
	h := &p.req.Hints
	switch string(name) {
	case "nvext":
		h.Output = 0
		inObject(value, "agent_hints", func(hints []byte) {
			h.Output = 0
			inObject(hints, "osl", func(osl []byte) { h.Output = length(osl) })
		})
	case "stop", "stop_sequences":
		h.Stops = !isEmpty(value)
	case "response_format":
		h.Structured = hasForm(value)
	case "text": // of responses
		inObject(value, "format", func(format []byte) { h.Structured = hasForm(format) })
	case "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar":
		h.Structured = h.Structured || !isEmpty(value)
	}
}

// hasForm reports whether a response_format asks for more than text.
func hasForm(format []byte) (form bool) {
	inObject(format, "type", func(kind []byte) { form = !rawjson.Equal(kind, "text") })
	return form
}

// length reads a length that a client expects; 0 where it is none.
func length(value []byte) int {
	n, ok := whole(value)
	if !ok || n < 0 || n > maxHint {
		return 0
	}
	return n
}

// maxHint is more than any answer has.
const maxHint = 1 << 20

// inObject calls with for each member called name, if value is an object.
func inObject(value []byte, name string, with func(value []byte)) {
	if value[0] != '{' {
		return
	}
	s := rawjson.Scanner{Data: value}
	for key := range s.Members() {
		if v := s.Value(); v != nil && rawjson.Equal(key, name) {
			with(v)
		}
	}
}

// mayAskUsage sets [Request.MayAskUsage]. It is false for several answers in one stream, because each has
// its own end, and for unknown members of stream_options, because their meaning is unknown.
func (p *parser) mayAskUsage() bool {
	r := p.req
	alone := r.N == 1 && !p.embeds && (r.Kind == Chat || r.Kind == Completions)
	if r.Batched {
		alone = alone && r.Unsplittable == "" // each prompt is asked for by itself
	}
	return alone && r.Stream && !r.IncludeUsage && !p.otherOptions
}
