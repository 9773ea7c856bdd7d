package enginesim

import (
	"strings"
	"unicode/utf8"
)

// detokenizer turns the tokens of one answer into text, one by one. It imitates vLLM 0.32, which uses the
// decode stream of Hugging Face's tokenizers. Bytes at the end that are not yet a whole character wait for
// the next token. If the answer ends there, these bytes are never sent.
//
// The detokenizer begins with the prompt, so that each token is read in its context. If a prompt ends in the
// middle of a character, its text cannot be separated from the text of the first tokens. As in vLLM, the
// first whole character then repeats the whole prompt.
type detokenizer struct {
	voc    *vocabulary
	prompt []uint32 // nil if no longer needed
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

// next returns the text that the token adds.
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

// unfinished reports whether the text ends in a replacement character: decoders write it for bytes that are
// not a character, or not yet.
func unfinished(b []byte) bool {
	r, _ := utf8.DecodeLastRune(b)
	return len(b) > 0 && r == utf8.RuneError
}

// readable replaces each byte that is part of no character by a replacement character.
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

// bytes returns the bytes of a token, "" for special tokens.
func (v *vocabulary) bytes(id uint32) string {
	if int(id) >= len(v.text) {
		return ""
	}
	return v.text[id]
}
