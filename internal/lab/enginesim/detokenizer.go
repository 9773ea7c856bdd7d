package enginesim

import (
	"strings"
	"unicode/utf8"
)

// detokenizer turns the tokens of one answer into text as they come. It imitates vLLM 0.32, which uses the
// decode stream of Hugging Face's tokenizers. Bytes at the end that are no whole character wait for the next
// token. If the answer ends there, these bytes are never sent.
//
// The detokenizer begins with the prompt, so that each token is read in its context. If a prompt ends in the
// middle of a character, its text cannot be separated from the text of the first tokens. As in vLLM, the
// first whole character then repeats the whole prompt.
type detokenizer struct {
	voc    *vocabulary
	prompt []uint32 // nil once it does not matter any more
	torn   bool     // the prompt's text ends in the middle of a character
	held   []byte
}

func newDetokenizer(voc *vocabulary, prompt []uint32) detokenizer {
	d := detokenizer{voc: voc, prompt: prompt}
	var tail []byte
	for _, id := range prompt[max(0, len(prompt)-utf8.UTFMax):] {
		tail = append(tail, voc.bytes(id)...)
	}
	if d.torn = unfinished(tail); !d.torn {
		d.prompt = nil
	}
	return d
}

// next returns the text that the token brings.
func (d *detokenizer) next(id uint32) string {
	d.held = append(d.held, d.voc.bytes(id)...)
	if len(d.held) == 0 || unfinished(d.held) {
		return ""
	}
	text := readable(d.held)
	if d.torn {
		var all []byte
		for _, id := range d.prompt {
			all = append(all, d.voc.bytes(id)...)
		}
		text = readable(append(all, d.held...))
		d.torn = false
		d.prompt = nil
	}
	d.held = d.held[:0]
	return text
}

// unfinished reports whether the text ends in a replacement character, which is how a decoder shows bytes
// that are no character, or not yet.
func unfinished(b []byte) bool {
	r, _ := utf8.DecodeLastRune(b)
	return len(b) > 0 && r == utf8.RuneError
}

// readable shows each byte that is part of no character as a replacement character.
func readable(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var s strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		s.WriteRune(r)
		b = b[n:]
	}
	return s.String()
}

// bytes is what a token stands for, "" for special ones.
func (v *vocabulary) bytes(id uint32) string {
	if int(id) >= len(v.text) {
		return ""
	}
	return v.text[id]
}
