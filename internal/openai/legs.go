package openai

// The members that leg 1 drops from a client's own body. Leg 1 makes one token that nobody sees, and the
// members listed here take no part in making the prompt or its KV blocks. Members that might (tools,
// response_format, template arguments) stay, because both legs must have the same ids.
var notOnPrefill = [...]string{
	"stream_options", "min_tokens", "min_completion_tokens", "logprobs", "top_logprobs", "prompt_logprobs", "n",
	"best_of",
	"stop", "stop_token_ids", "include_stop_str_in_output", "structured_outputs",
	"guided_json", "guided_regex", "guided_choice", "guided_grammar", "guided_decoding_backend",
	"guided_whitespace_pattern",
}

// What leg 1 made from ids takes over from the client's body.
var onPrefill = [...]string{"cache_salt", "priority", "session_id"}

// Shared JSON numbers of the legs, which must not be changed.
var one, zero = []byte("1"), []byte("0")

// PrefillIDs begins leg 1 on /v1/completions from ids, a raw JSON array: one token, and only the client's
// fields that name the model, the cache and the queue. It serves every kind of request, because a pull
// matches only the ids.
func (r *Request) PrefillIDs(ids []byte) *Edit {
	e := NewEdit()
	if model := r.member("model"); model != nil {
		e.Set("model", model)
	}
	e.Set("prompt", ids)
	e.Set("max_tokens", one)
	e.Set("temperature", zero)
	for _, key := range onPrefill {
		if r.Kind == Messages && key != "cache_salt" { // this API has only cache_salt
			continue
		}
		if value := r.member(key); value != nil && !isNull(value) {
			e.Set(key, value)
		}
	}
	return e
}

// PrefillBody begins leg 1 on the request's own path from the client's own body, for when there are no ids
// that both legs could share. With returnIDs the engine is asked for the prompt's ids. For a batch, set
// prompt as well.
func (r *Request) PrefillBody(returnIDs bool) *Edit {
	e := r.Edit()
	if r.member("stream") != nil {
		e.Set("stream", []byte("false"))
	}
	e.Set("max_tokens", one)
	if r.member("max_completion_tokens") != nil {
		e.Set("max_completion_tokens", one)
	}
	for _, key := range notOnPrefill {
		e.Delete(key)
	}
	if returnIDs {
		e.Set("return_token_ids", []byte("true"))
	}
	return e
}
