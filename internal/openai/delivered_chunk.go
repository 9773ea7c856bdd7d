package openai

import (
	"bytes"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// chunk is where the parts of a stream's chunk lie, in the whole event.
//
// Long: a field a part of the chunk.
type chunk struct {
	id, created, model, usage span
	prompt                    span // prompt_token_ids, at the top or in the choice, unless null
	count                     int  // of choices
	index                     int
	text, delta, ids          span // text includes its quotes; ids unless null
	role, other, finish       bool // other: a delta holds more than text and a role
}

// readChunk finds the parts; false where the event is no chunk.
func readChunk(e Event) (c chunk, ok bool) {
	at := payload(e)
	s := rawjson.Scanner{Data: e[:at.end], Pos: at.start, Max: answerDepth}
	for key := range s.Members() {
		switch string(rawjson.Name(key)) {
		case "id":
			c.id = spanOf(&s)
		case "created":
			c.created = spanOf(&s)
		case "model":
			c.model = spanOf(&s)
		case "usage":
			if v := spanOf(&s); v.end > v.start && e[v.start] == '{' {
				c.usage = v
			}
		case "prompt_token_ids":
			c.prompt = unlessNull(&s)
		case "choices":
			if s.Peek() != '[' {
				s.Skip()
				continue
			}
			for range s.Elements() {
				c.count++
				c.choice(&s)
			}
		default:
			s.Skip()
		}
	}
	return c, s.Err() == nil && c.id.end > 0
}

func (c *chunk) choice(s *rawjson.Scanner) {
	for key := range s.Members() {
		switch string(rawjson.Name(key)) {
		case "index":
			c.index, _ = whole(s.Value())
		case "text":
			c.text = stringAt(s)
		case "delta":
			start := s.Pos
			if s.Peek() == '{' {
				start = s.Pos
				c.deltaOf(s)
			} else {
				s.Skip()
			}
			c.delta = span{start, s.Pos}
		case "finish_reason":
			c.finish = !isNull(s.Value())
		case "prompt_token_ids":
			c.prompt = unlessNull(s)
		case "token_ids":
			c.ids = unlessNull(s)
		default:
			s.Skip()
		}
	}
}

func (c *chunk) deltaOf(s *rawjson.Scanner) {
	for key := range s.Members() {
		switch string(rawjson.Name(key)) {
		case "content":
			c.text = stringAt(s)
		case "role":
			c.role = true
			s.Skip()
		default:
			if value := s.Value(); len(value) > 0 && !isEmpty(value) {
				c.other = true
			}
		}
	}
}

// spanOf consumes one value.
func spanOf(s *rawjson.Scanner) span {
	s.Peek()
	at := span{start: s.Pos}
	s.Skip()
	at.end = s.Pos
	return at
}

func unlessNull(s *rawjson.Scanner) span {
	if c := s.Peek(); c != '[' {
		s.Skip()
		return span{}
	}
	return spanOf(s)
}

func stringAt(s *rawjson.Scanner) span {
	if c := s.Peek(); c != '"' {
		s.Skip()
		return span{}
	}
	return spanOf(s)
}

// names copies what every event of the answer has.
func (c *chunk) names(e Event) []named {
	var all []named
	for _, m := range []struct {
		key string
		at  span
	}{{"id", c.id}, {"created", c.created}, {"model", c.model}} {
		if m.at.end > 0 {
			all = append(all, named{m.key, bytes.Clone(m.at.of(e))})
		}
	}
	return all
}

// bare reports whether there is nothing in the chunk but token ids.
func (c *chunk) bare() bool {
	return c.count == 1 && c.delta.end-c.delta.start == len("{}") && !c.finish
}

// hide makes the token ids null.
func (c *chunk) hide(patches []patch) []patch {
	for _, at := range []span{c.prompt, c.ids} {
		if at.end > 0 {
			patches = append(patches, patch{at, null})
		}
	}
	return sorted(patches)
}
