package openai

import (
	"slices"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// The members of /v1/messages and /v1/responses that do not make answers differ from time to time, besides
// the members of all kinds in [Request.Repeatable]. They come from anthropic/protocol.py and
// openai/responses/protocol.py of vLLM 0.32. Each API ignores members that only the other has, so each has
// its own list.

// repeats reports whether a member of such a request is known and leaves repeated answers alike.
func (k Kind) repeats(name string, value []byte) bool {
	switch {
	case isEmpty(value):
		return true
	case k == Messages && name == "system":
		return onlyText(value)
	case k == Messages:
		return slices.Contains(repeatedMessages, name)
	case name == "tool_choice": // of no tools
		return rawjson.Equal(value, "none") || rawjson.Equal(value, "auto")
	}
	return slices.Contains(repeatedResponses, name)
}

var repeatedMessages = []string{
	"model", "messages", "max_tokens", "stream", "stop_sequences", "top_p", "top_k", "metadata",
	"output_config", "thinking", "cache_salt", "chat_template_kwargs",
}

// whoAsksMessages are whoAsks for /v1/messages.
var whoAsksMessages = []string{"metadata"}

var repeatedResponses = []string{
	"model", "input", "instructions", "stream", "max_output_tokens", "top_p", "top_k", "min_p",
	"presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "top_logprobs", "include",
	"include_reasoning", "reasoning", "text", "structured_outputs", "stop", "stop_token_ids", "ignore_eos",
	"skip_special_tokens", "include_stop_str_in_output", "truncation", "max_tool_calls", "parallel_tool_calls",
	"chat_template_kwargs", "cache_salt", "request_id", "user", "metadata", "service_tier",
	"store", "prompt_cache_key", "safety_identifier", "priority", "session_id",
}

// whoAsksResponses are whoAsks for /v1/responses. The response repeats user, metadata and service_tier, so
// they are part of the question.
var whoAsksResponses = []string{"store", "prompt_cache_key", "safety_identifier", "priority", "session_id"}

// storeAsked reports whether the answer depends on a response that an engine has kept, or is to be kept
// there. If the request does not say, engines that keep responses also keep this one, under its id. A
// repeated answer gives the same id to all its clients, which is right as long as the engine lives.
func (r *Request) storeAsked(rule Repeat) bool {
	if r.Kind != Responses {
		return false
	}
	told := false
	for _, m := range inOrder(r.asked()) {
		switch m.name {
		case "store":
			yes, ok := truth(m.value)
			if yes || !ok {
				return true
			}
			told = true
		case "background", "previous_response_id", "previous_response", "previous_input_messages", "conversation":
			if !isEmpty(m.value) {
				return true
			}
		}
	}
	return rule.Outlives && !told
}
