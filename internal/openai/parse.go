package openai

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"unicode/utf8"

	"tandem/internal/rawjson"
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

// Parse reads body, which the result keeps and nobody may change afterwards. Errors are *[BadRequest].
//
// Transfer params go out here, whatever else happens: what [Request.Raw] holds was scanned and had none.
// Values follow vLLM's lax reading ("n": "2" is two); the last of several members of one name counts, as in
// Python.
func Parse(kind Kind, body []byte, lim Limits) (*Request, error) {
	if !utf8.Valid(body) {
		return nil, &BadRequest{Message: "the body is not valid UTF-8"}
	}
	removed := 0
	for {
		p := parser{cleaner: cleaner{scan: rawjson.Scanner{Data: body, Max: lim.Depth}}, lim: lim}
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
	lim Limits
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
	p.req.fields = make([]field, 0, 16)
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
			p.readOpaque(name, value)
		}
	default:
		start := p.scan.Pos
		p.value(false)
		if p.scan.Err() == nil {
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
	// vLLM makes prompt_logprobs of them, on chats always: skip_reading_prefix_cache of sampling_params.py.
	if p.echo && (p.logprobs || r.Kind == Chat) {
		r.Uncached = true
	}
	p.limit()
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

// prompt reads a completion's prompt: text, ids, or an array of either.
func (p *parser) prompt() {
	r, s := p.req, &p.scan
	r.Prompts, r.Batched = nil, false
	switch s.Peek() {
	case '"':
		p.addText()
	case '[':
		p.promptArray()
	case 'n':
		s.Skip()
	default:
		s.Skip()
		p.refuse("prompt", badPrompt)
	}
}

const badPrompt = "prompt must be a string, an array of strings, an array of token ids, or an array of " +
	"arrays of token ids"

func (p *parser) addText() {
	text := p.scan.String()
	if len(text) == len(`""`) {
		p.unsplittable("empty prompt")
	}
	p.req.Prompts = append(p.req.Prompts, Prompt{Text: text})
}

func (p *parser) promptArray() {
	s := &p.scan
	switch c := p.firstElement(); {
	case c == '"':
		p.batch(c, p.addText)
	case c == '[':
		ids := make([]uint32, 0, (len(s.Data)-s.Pos)/5+8)
		p.batch(c, func() { ids = p.addIDs(ids) })
	case c == '-' || '0' <= c && c <= '9':
		p.addIDs(nil)
	case c == ']':
		s.Skip()
	default:
		s.Skip()
		p.refuse("prompt", badPrompt)
	}
}

// firstElement returns the first byte of the array's first element.
func (p *parser) firstElement() byte {
	ahead := rawjson.Scanner{Data: p.scan.Data, Pos: p.scan.Pos + 1}
	return ahead.Peek()
}

// batch reads an array whose elements all begin with the byte first. Beyond the bound of prompts they are
// walked over and the whole is unsplittable.
func (p *parser) batch(first byte, add func()) {
	r := p.req
	s := &p.scan
	n := 0
	for i := range s.Elements() {
		n = i + 1
		switch c := s.Peek(); {
		case c != first:
			s.Skip()
			p.refuse("prompt", badPrompt)
		case n > p.lim.prompts():
			s.Skip()
		default:
			add()
		}
	}
	if n > p.lim.prompts() {
		r.Prompts = nil
		p.unsplittable("more prompts than may be split")
	}
	r.Batched = n > 1
}

// addIDs reads one array of ids, the ids behind those in all, and returns the longer slice. Prompts of a
// batch share one array; when it grows the earlier ones keep the old memory.
func (p *parser) addIDs(all []uint32) []uint32 {
	s := &p.scan
	start, from := s.Pos, len(all)
	all = s.IDs(all)
	if s.Err() != nil {
		return all
	}
	if len(all) == from {
		p.refuse("prompt", "a prompt of token ids must not be empty")
		return all
	}
	if p.lim.PromptTokens > 0 && len(all) > p.lim.PromptTokens {
		p.refuse("prompt", "the prompt has more than "+strconv.Itoa(p.lim.PromptTokens)+" tokens")
	}
	p.req.Prompts = append(p.req.Prompts, Prompt{IDs: slices.Clip(all[from:]), IDsRaw: s.Data[start:s.Pos]})
	return all
}

// messages walks a chat's messages to learn whether there is anything but text in them.
func (p *parser) messages() {
	s := &p.scan
	start := s.Pos
	if s.Peek() != '[' {
		s.Skip()
		p.refuse("messages", "messages must be an array")
		return
	}
	p.req.Multimodal = false
	n := 0
	for range s.Elements() {
		n++
		if s.Peek() != '{' {
			s.Skip()
			p.refuse("messages", "each of messages must be an object")
			continue
		}
		p.message()
	}
	if n == 0 {
		p.unsplittable("no messages")
	}
	if p.req.Multimodal {
		p.unsplittable("content that is not text")
	}
	if s.Err() == nil {
		p.req.Messages = s.Data[start:s.Pos]
	}
}

func (p *parser) message() {
	s := &p.scan
	for key := range s.Members() {
		if !rawjson.Equal(key, "content") {
			s.Skip()
			continue
		}
		switch s.Peek() {
		case '"', 'n':
			s.Skip()
		case '[':
			for range s.Elements() {
				p.part()
			}
		default:
			s.Skip()
			p.req.Multimodal = true
		}
	}
}

// part walks one content part. Only a string and {"type": "text", ...} are known to be text.
func (p *parser) part() {
	s := &p.scan
	if s.Peek() != '{' {
		p.req.Multimodal = p.req.Multimodal || s.Peek() != '"'
		s.Skip()
		return
	}
	text := false
	for key := range s.Members() {
		if value := s.Value(); rawjson.Equal(key, "type") {
			text = rawjson.Equal(value, "text")
		}
	}
	p.req.Multimodal = p.req.Multimodal || !text
}

// Sanitize returns body without transfer params, for the paths that are passed through; body itself when
// there were none. Any valid JSON is accepted. Errors are *[BadRequest].
func Sanitize(body []byte, lim Limits) ([]byte, error) {
	if !utf8.Valid(body) {
		return nil, &BadRequest{Message: "the body is not valid UTF-8"}
	}
	for {
		c := cleaner{scan: rawjson.Scanner{Data: body, Max: lim.Depth}}
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

// Glance is what is read of a request that is passed through.
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
