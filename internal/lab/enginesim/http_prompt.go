package enginesim

import (
	"slices"
	"strings"
)

// prompt reads text, ids, a list of texts or a list of id lists.
func (p *params) prompt(s *scanner, voc *vocabulary) {
	switch s.Peek() {
	case 'n':
		s.null()
	case '"':
		p.text(s, voc)
	case '[':
		p.promptList(s, voc)
	default:
		s.Fail(badType)
	}
}

func (p *params) text(s *scanner, voc *vocabulary) {
	p.raw = textPrompt
	p.add(voc.tokenize(p.ids, string(s.str())))
}

func (p *params) idList(s *scanner) {
	p.raw = idPrompt
	p.add(s.ids(p.ids))
}

// add takes the grown p.ids and makes the new tail a prompt. Earlier prompts keep an older backing array.
func (p *params) add(ids []uint32) {
	p.prompts = append(p.prompts, ids[len(p.ids):len(ids):len(ids)])
	p.ids = ids
}

func (p *params) promptList(s *scanner, voc *vocabulary) {
	first := s.Scanner
	first.Pos++
	switch first.Peek() {
	case '"':
		s.array(func() { p.text(s, voc) })
	case '[':
		s.array(func() { p.idList(s) })
	case ']':
		s.Value()
		p.more().noPrompts = true
	default:
		p.idList(s)
	}
}

// messages reads turns whose content is text or a list of parts.
func (p *params) messages(s *scanner) {
	s.array(func() {
		var t chatMessage
		s.object(func(key []byte) {
			switch string(key) {
			case "role":
				t.role = string(s.str())
			case "content":
				t.content = p.content(s)
			default:
				s.Skip()
			}
		})
		if p.at == atChat && t.role == "" && p.strict == nil {
			p.strict = invalidBody("body.messages")
		}
		p.turns = append(p.turns, t)
	})
}

// content reads a string, a list of text parts, or null.
func (p *params) content(s *scanner) string {
	switch s.Peek() {
	case '"':
		return string(s.str())
	case '[':
		var all []string
		s.array(func() { all = append(all, p.part(s)) })
		return strings.Join(all, "\n")
	}
	s.Skip()
	return ""
}

func (p *params) part(s *scanner) string {
	if s.Peek() == '"' {
		return string(s.str())
	}
	text := ""
	s.object(func(key []byte) {
		if string(key) == "text" && s.Peek() == '"' {
			text = string(s.str())
			return
		}
		switch string(key) {
		case "image_url", "input_audio", "video_url":
			p.more().media = true
		case "type":
			p.partType(s.Value())
			return
		}
		s.Skip()
	})
	return text
}

// partType refuses parts of chat content that vLLM does not know (chat_utils.py, MM_PARSER_MAP).
func (p *params) partType(value []byte) {
	switch strings.Trim(string(value), `"`) {
	case "image":
		if p.at == atMessages {
			p.more().media = true
			return
		}
	case "text", "refusal", "input_text", "output_text", "thinking", "image_url", "image_pil", "image_embeds",
		"input_image", "audio_url", "input_audio", "audio_embeds", "video_url":
		return
	}
	if p.at == atChat && p.strict == nil {
		p.strict = badRequest("", "1 validation error for ValidatorIterator\n0.type\n  Unknown part type: %s",
			clip(value))
	}
}

// system reads Anthropic's system prompt and puts it before the turns.
func (p *params) system(s *scanner) {
	if text := p.content(s); text != "" {
		p.turns = slices.Insert(p.turns, 0, chatMessage{"system", text})
	}
}

// input reads the prompt of /v1/responses.
func (p *params) input(s *scanner) {
	if s.Peek() == '[' {
		if p.messages(s); len(p.turns) == 0 {
			p.more().noTurns = true
		}
		return
	}
	p.turns = append(p.turns, chatMessage{"user", string(s.str())})
}
