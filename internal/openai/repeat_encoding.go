package openai

import (
	"bytes"
	"slices"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// Encoding is a request for vectors or scores of texts, as it goes to vLLM's pooling APIs.
type Encoding struct {
	Path string
	Body []byte // JSON that [Sanitize] has passed
}

// The members of the requests of entrypoints/pooling of vLLM 0.32 that are known not to make answers differ
// from time to time.
var (
	encoded = []string{
		"model", "user", "priority", "truncate_prompt_tokens", "padding", "truncation_side", "request_id",
		"cache_salt", "use_activation",
	}
	encodedTexts = []string{
		"input", "messages", "add_special_tokens", "add_generation_prompt", "continue_final_message",
		"chat_template", "chat_template_kwargs",
	}
	encodedVectors = []string{"encoding_format", "embed_dtype", "endianness", "dimensions"}
	encodedScores  = []string{
		"max_tokens_per_query", "max_tokens_per_doc", "instruction", "chat_template_kwargs", "documents",
	}
	encodedPairs = []string{"data_1", "data_2", "queries", "items", "text_1", "text_2"}
)

// whoAsksEncoding are whoAsks for embeddings and the other encoding APIs.
var whoAsksEncoding = []string{"user", "priority"}

// encodings are the members of each API beyond the common ones. A member for a plugin of an engine is not
// among them: its meaning is unknown.
var encodings = map[string][]string{
	"/v1/embeddings": slices.Concat(encodedTexts, encodedVectors),
	"/pooling":       slices.Concat(encodedTexts, encodedVectors, []string{"task"}),
	"/classify":      encodedTexts,
	"/score":         slices.Concat(encodedScores, encodedPairs),
	"/v1/score":      slices.Concat(encodedScores, encodedPairs),
	"/rerank":        slices.Concat(encodedScores, []string{"query", "top_n"}),
	"/v1/rerank":     slices.Concat(encodedScores, []string{"query", "top_n"}),
	"/v2/rerank":     slices.Concat(encodedScores, []string{"query", "top_n"}),
}

// Repeatable returns what the answer to the request depends on, as [Request.Repeatable] does. Nothing is
// drawn by chance for it, so the same texts have the same answer.
func (e *Encoding) Repeatable(Repeat) (canonical []byte, why string) {
	var all []asked
	s := scanner(e.Body)
	for key := range s.Members() {
		all = append(all, asked{name: string(rawjson.Name(key)), value: s.Value()})
	}
	if s.End(); s.Err() != nil || rawjson.Torn(e.Body) || deep(e.Body) {
		return nil, UnknownMember
	}
	list := make([]asked, 0, len(all))
	for _, m := range inOrder(all) {
		switch {
		case slices.Contains(textsAsked, m.name):
			if !plainTexts(m.value) {
				return nil, MediaAsked
			}
		case m.name == "encoding_format": // as bytes, the answer needs a header that we do not pass on
			if !rawjson.Equal(m.value, "float") && !rawjson.Equal(m.value, "base64") {
				return nil, UnknownMember
			}
		}
		if !e.repeats(m.name) && !isEmpty(m.value) {
			return nil, UnknownMember
		}
		if !slices.Contains(whoAsksEncoding, m.name) {
			list = append(list, m)
		}
	}
	return appendMembers(make([]byte, 0, len(e.Body)), list, ""), ""
}

func (e *Encoding) repeats(name string) bool {
	return slices.Contains(encoded, name) || slices.Contains(encodings[e.Path], name)
}

// textsAsked are the members that contain the texts to encode.
var textsAsked = append([]string{"input", "messages", "documents", "query"}, encodedPairs...)

// plainTexts reports whether value is made of texts, token ids and messages of text: nothing in it is an
// address, behind which another picture can be tomorrow.
func plainTexts(value []byte) bool {
	switch value[0] {
	case '[':
		s := scanner(value)
		for range s.Elements() {
			if element := s.Value(); len(element) == 0 || !plainTexts(element) {
				return false
			}
		}
		return s.Err() == nil
	case '{':
		return plainMessage(value)
	}
	return true
}

func plainMessage(value []byte) bool {
	s := scanner(value)
	for key := range s.Members() {
		inside := s.Value()
		if s.Err() != nil {
			return false
		}
		switch string(rawjson.Name(key)) {
		case "role", "name":
		case "content":
			if !isNull(inside) && !onlyText(inside) {
				return false
			}
		default:
			return false
		}
	}
	return s.Err() == nil
}

// Finished reports whether a good answer to the request is whole: it is JSON, and no error.
func (e *Encoding) Finished(answer []byte) bool {
	s := scanner(bytes.TrimSpace(answer))
	found := false
	for key := range s.Members() {
		s.Skip()
		switch string(rawjson.Name(key)) {
		case "data", "results":
			found = true
		case "error":
			return false
		}
	}
	s.End()
	return found && s.Err() == nil
}
