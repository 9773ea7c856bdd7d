package openai

import (
	"errors"
	"slices"
	"strconv"

	"github.com/tandem-router/tandem/internal/rawjson"
)

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
	p.add(Prompt{Text: text})
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

// batch reads an array with elements that all begin with the byte first. If there are more prompts than the
// bound, the rest is walked over and the request is unsplittable.
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
	r.Batched, r.InBatch = n > 1, n
}

// addIDs reads one array of ids, appends them to all, and returns the longer slice. Prompts of a batch share
// one array; when it grows the earlier prompts keep the old memory.
func (p *parser) addIDs(all []uint32) []uint32 {
	s := &p.scan
	start, from := *s, len(all)
	all = s.IDs(all)
	raw := s.Data[start.Pos:s.Pos]
	if odd, ok := errors.AsType[*rawjson.SyntaxError](s.Err()); ok && odd.Reason == rawjson.NotAnID {
		*s, all = start, all[:from]
		all = s.WholeIDs(all)
		raw = AppendIDs(nil, all[from:]) // connectors read it, too
	}
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
	p.add(Prompt{IDs: slices.Clip(all[from:]), IDsRaw: raw})
	return all
}

func (p *parser) add(prompt Prompt) {
	if p.req.Prompts == nil {
		p.req.Prompts = p.req.onePrompt[:0]
	}
	p.req.Prompts = append(p.req.Prompts, prompt)
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
