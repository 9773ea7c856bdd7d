package openai

import (
	"bytes"

	"github.com/tandem-router/tandem/internal/rawjson"
)

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
