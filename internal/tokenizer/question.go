package tokenizer

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"

	"github.com/tandem-router/tandem/internal/rawjson"
	"github.com/tandem-router/tandem/internal/replica"
)

// key names a prompt: a hash of everything that takes part in making its ids.
type key [sha256.Size]byte

// question is a prompt to resolve, and how to ask for it.
type question struct {
	key key
	// The ids depend on key alone: the ids may be kept, and shared with callers that ask meanwhile.
	keep       bool
	size       int // bytes of the raw prompt
	renderPath string
	render     func() []byte // makes the body for it
	tokenize   func() []byte // nil where no body of /tokenize stands for the prompt
	templated  bool          // an engine's template makes the prompt, and may look at the clock
	exact      bool          // /tokenize takes every field that matters
}

// aside lists the fields of a request that take no part in making its prompt. A field that is not listed
// counts as part of the prompt.
func aside(name string) bool {
	switch name {
	case "temperature", "top_p", "top_k", "min_p", "seed", "n", "best_of", "use_beam_search", "length_penalty",
		"early_stopping",
		"presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "bad_words",
		"allowed_token_ids",
		"max_tokens", "max_completion_tokens", "min_tokens", "stop", "stop_token_ids", "include_stop_str_in_output",
		"ignore_eos",
		"stream", "stream_options", "logprobs", "top_logprobs", "prompt_logprobs", "skip_special_tokens",
		"spaces_between_special_tokens",
		"return_token_ids", "return_tokens_as_token_ids", "detokenize", "structured_outputs",
		"thinking_token_budget",
		"guided_json", "guided_regex", "guided_choice", "guided_grammar", "guided_decoding_backend",
		"guided_whitespace_pattern",
		"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "priority",
		"request_id", "session_id",
		"cache_salt", "vllm_xargs":
		return true
	}
	return false
}

// known lists the fields that /tokenize reads as the chat path does. tools is left out: the chat path lets
// its tool parser change the request first.
func known(name string) bool {
	switch name {
	case "model", "messages", "add_generation_prompt", "continue_final_message", "add_special_tokens",
		"chat_template", "chat_template_kwargs":
		return true
	}
	return false
}

// alsoTokenize lists what /tokenize reads beyond that; the ids are then a hint.
func alsoTokenize(name string) bool {
	return name == "tools" || name == "mm_processor_kwargs" || name == "media_io_kwargs"
}

// chatQuestion reads what matters of a chat.
func chatQuestion(of replica.Release, body []byte) question {
	q := question{
		keep: true, exact: true, templated: true, renderPath: "/v1/chat/completions/render", size: len(body),
	}
	q.render = func() []byte { return body }
	q.tokenize = func() []byte { return chatTokenize(body) }
	h := newHash("chat", of)
	for name, value := range members(body) {
		if aside(name) {
			continue
		}
		h.add(name, value)
		if name == "messages" {
			q.size = len(value)
		}
		q.exact = q.exact && (known(name) || isNull(value)) && !(name == "model" && harmony(value))
		q.keep = q.keep && name != "truncate_prompt_tokens" // depends on max_tokens too
	}
	q.key = h.sum()
	return q
}

func chatTokenize(body []byte) []byte {
	ask := object{}
	for name, value := range members(body) {
		if (known(name) || alsoTokenize(name)) && !isNull(value) {
			ask.add(name, value)
		}
	}
	return ask.end()
}

func isNull(value []byte) bool { return string(value) == "null" }

// harmony reports whether the chat path of model uses no template, so that /tokenize cannot render its
// chats.
func harmony(model []byte) bool { return bytes.Contains(bytes.ToLower(model), []byte("gpt-oss")) }

// conversationQuestion reads a request to /v1/messages or /v1/responses: all fields except those listed in
// aside. Only render knows how the engine makes a conversation from the request.
func conversationQuestion(of replica.Release, path string, body []byte) question {
	q := question{keep: true, exact: true, templated: true, renderPath: path + "/render", size: len(body)}
	q.render = func() []byte { return body }
	h := newHash(path, of)
	for name, value := range members(body) {
		if !aside(name) && name != "max_output_tokens" && name != "stop_sequences" {
			h.add(name, value)
		}
	}
	q.key = h.sum()
	return q
}

// completionQuestion reads the fields of a completion that matter. A completion has no template: /tokenize
// gives the ids that the engine would make.
func completionQuestion(of replica.Release, model string, promptRaw, body []byte) question {
	q := question{keep: true, exact: true, renderPath: "/v1/completions/render", size: len(promptRaw)}
	q.render = func() []byte { return completionAsk(model, promptRaw, body, func(string) bool { return true }) }
	q.tokenize = func() []byte {
		return completionAsk(model, promptRaw, body, func(name string) bool { return name == "add_special_tokens" })
	}
	h := newHash("completion", of)
	h.add("model", []byte(model))
	h.add("prompt", promptRaw)
	for name, value := range completionFields(body) {
		h.add(name, value)
		q.exact = q.exact && !changesCompletion(name)
		q.keep = q.keep && name != "truncate_prompt_tokens"
	}
	q.key = h.sum()
	return q
}

// completionFields yields the members that may take part in making the prompt, beside the prompt itself and
// the model.
func completionFields(body []byte) func(func(string, []byte) bool) {
	return func(yield func(string, []byte) bool) {
		for name, value := range members(body) {
			if !aside(name) && name != "model" && name != "prompt" && !isNull(value) && !yield(name, value) {
				return
			}
		}
	}
}

// completionAsk makes a body with the one prompt and those members that are wanted.
func completionAsk(model string, promptRaw, body []byte, wanted func(name string) bool) []byte {
	ask := object{}
	if model != "" {
		ask.add("model", rawjson.AppendString(nil, model))
	}
	ask.add("prompt", promptRaw)
	for name, value := range completionFields(body) {
		if wanted(name) {
			ask.add(name, value)
		}
	}
	return ask.end()
}

// changesCompletion lists the fields that change a completion's prompt and that /tokenize does not have.
func changesCompletion(name string) bool {
	switch name {
	case "truncate_prompt_tokens", "truncation_side", "suffix", "prompt_embeds", "mm_processor_kwargs":
		return true
	}
	return false
}

// members yields the top-level members of a JSON object, the last of each name only where it matters: a later
// one comes later.
func members(body []byte) func(func(string, []byte) bool) {
	return func(yield func(string, []byte) bool) {
		s := rawjson.Scanner{Data: body}
		for key := range s.Members() {
			value := s.Value()
			if s.Err() != nil || !yield(string(rawjson.Name(key)), value) {
				return
			}
		}
	}
}

// object builds a JSON object. A name that comes twice is written twice; the engine takes the last, as it
// would of the request.
type object struct{ raw []byte }

func (o *object) add(name string, value []byte) {
	if o.raw == nil {
		o.raw = append(make([]byte, 0, len(value)+256), '{')
	} else {
		o.raw = append(o.raw, ',')
	}
	o.raw = append(rawjson.AppendString(o.raw, name), ':')
	o.raw = append(o.raw, value...)
}

func (o *object) end() []byte {
	if o.raw == nil {
		return []byte("{}")
	}
	return append(o.raw, '}')
}

// hash sums names and values, each with its length before it, so that no two lists of fields look alike.
type hash struct{ all []byte }

func newHash(kind string, of replica.Release) *hash {
	h := &hash{all: make([]byte, 0, 512)}
	h.all = append(append(h.all, kind...), 0)
	h.all = append(append(h.all, of.Root...), 0)
	h.all = append(append(h.all, of.Version...), 0)
	h.all = append(append(h.all, of.Revision...), 0)
	h.all = binary.LittleEndian.AppendUint64(h.all, of.Sample)
	return h
}

func (h *hash) add(name string, value []byte) {
	sum := sha256.Sum256(value)
	h.all = binary.AppendUvarint(h.all, uint64(len(name)))
	h.all = append(append(h.all, name...), sum[:]...)
}

func (h *hash) sum() key { return sha256.Sum256(h.all) }
