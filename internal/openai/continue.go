package openai

import (
	"bytes"
	"iter"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// Continuation is the facts about a request with which another engine can continue its streamed answer.
type Continuation struct {
	Greedy    bool // the next token follows from the tokens before it: temperature 0
	ReturnIDs bool // the client asked for token ids itself
	Hold      int  // characters at the end of a text that may be the beginning of a stop string
	Included  bool // stop strings are part of the text: nothing is held back for them
}

// MaxHold bounds [Continuation.Hold], the part of the text that is kept and compared.
const MaxHold = 1024

// Continuation tells whether the prompt of another request can hold this request's prompt and the answer so
// far. It can if the rest of the answer depends on nothing but the tokens of both. why names the member that
// stands against it, "" when nothing does. A member that is not known here stands against it.
func (r *Request) Continuation() (c Continuation, why string) {
	switch {
	case r.Unsplittable != "":
		return c, r.Unsplittable
	case r.Kind != Completions && r.Kind != Chat:
		return c, "events of " + r.Kind.Path()
	case !r.Stream:
		return c, "not streamed"
	case r.Kind == Completions && r.MaxTokens == 0:
		return c, "max_tokens null" // none to old versions of vLLM, 16 to new ones
	}
	for _, f := range r.fields {
		name, value := rawjson.Name(f.key.of(r.Raw)), f.value.of(r.Raw)
		if !c.member(string(name), value) {
			return c, string(name)
		}
	}
	return c, ""
}

// member takes note of one member and reports whether the answer can be continued with it.
func (c *Continuation) member(name string, value []byte) bool {
	switch name {
	case "temperature":
		zero, ok := isZero(value)
		c.Greedy = zero
		return ok || isNull(value)
	case "stop":
		return c.stops(value)
	case "include_stop_str_in_output":
		yes, ok := truth(value)
		c.Included = yes
		return ok
	case "return_token_ids":
		yes, ok := truth(value)
		c.ReturnIDs = yes
		return ok
	case "presence_penalty", "frequency_penalty":
		// Count the tokens of the answer alone; repetition_penalty counts the prompt's too.
		zero, _ := isZero(value)
		return zero || isNull(value)
	case "spaces_between_special_tokens":
		yes, ok := truth(value)
		return ok && yes || isNull(value)
	case "n", "best_of":
		n, ok := whole(value)
		return ok && n == 1 || isNull(value)
	case "tool_choice":
		return rawjson.Equal(value, "none") || isNull(value)
	case "response_format":
		kind, ok := member(value, "type", '"')
		return isNull(value) || ok && rawjson.Equal(kind.of(value), "text")
	}
	return slices.Contains(continues, name) || isEmpty(value)
}

// continues are the members that mean the same for the rest of an answer as for the whole answer, or that
// [Request.ContinueFrom] changes.
var continues = []string{
	"model", "prompt", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens",
	"min_tokens",
	"top_p", "top_k", "min_p", "seed", "stop_token_ids", "ignore_eos", "skip_special_tokens",
	"repetition_penalty", "logit_bias", "allowed_token_ids", "return_tokens_as_token_ids", "stream_interval",
	"cache_salt", "priority", "session_id", "request_id", "user", "metadata", "store", "service_tier",
	"safety_identifier",
	"prompt_cache_key", "parallel_tool_calls",
	// What makes the prompt, which is known by its ids.
	"add_special_tokens", "chat_template", "chat_template_kwargs", "documents", "add_generation_prompt",
	"continue_final_message", "reasoning_effort",
}

// stops reads stop: a string or an array of strings.
func (c *Continuation) stops(value []byte) bool {
	c.Hold = 0
	if value[0] == '"' {
		return c.stop(value)
	}
	if value[0] != '[' {
		return isNull(value)
	}
	s := scanner(value)
	for range s.Elements() {
		if !c.stop(s.Value()) {
			return false
		}
	}
	return s.Err() == nil
}

func (c *Continuation) stop(value []byte) bool {
	if len(value) == 0 || value[0] != '"' {
		return false
	}
	c.Hold = max(c.Hold, utf8.RuneCountInString(rawjson.Text(value))-1)
	return c.Hold <= MaxHold
}

// isZero reads a number as pydantic's lax mode does.
func isZero(value []byte) (zero, ok bool) {
	text := string(value)
	if len(value) > 0 && value[0] == '"' {
		text = rawjson.Text(value)
	}
	f, err := strconv.ParseFloat(text, 64)
	return err == nil && f == 0, err == nil
}

// ContinueFrom begins the request that continues the answer to r's one prompt. ids, a raw JSON array, are
// the prompt's tokens and the first done tokens of the answer, which count in the limits. On /v1/completions
// the ids become the prompt. On chats the caller puts them where the engine takes ids.
func (r *Request) ContinueFrom(ids []byte, done int) *Edit {
	e := r.Edit()
	if r.Kind == Completions {
		e.Set("prompt", ids)
		e.Set("max_tokens", strconv.AppendInt(nil, int64(r.MaxTokens-done), 10))
	} else {
		r.lessen(e, "max_tokens", done, 1)
		r.lessen(e, "max_completion_tokens", done, 1)
	}
	r.lessen(e, "min_tokens", done, 0)
	return e
}

// lessen subtracts n from a number of the request, if there is one, down to least.
func (r *Request) lessen(e *Edit, key string, n, least int) {
	value := r.member(key)
	if value == nil || isNull(value) {
		return
	}
	if v, ok := whole(value); ok {
		e.Set(key, strconv.AppendInt(nil, int64(max(v-n, least)), 10))
	}
}

// Finished reports whether a good answer to the request, whole or all of a stream, ended by itself or at its
// limit: it was not aborted, nor did it call a tool.
func (r *Request) Finished(answer []byte) bool {
	switch r.Kind {
	case Messages:
		return messageFinished(answer)
	case Responses:
		return responseFinished(answer)
	}
	return choicesFinished(answer)
}

var finishMark = []byte(`"finish_reason"`)

// choicesFinished tells it of chats and completions. The names in their texts have escaped quotes, and are
// not found.
func choicesFinished(answer []byte) bool {
	ended := false
	for {
		_, rest, found := bytes.Cut(answer, finishMark)
		if !found {
			return ended
		}
		answer = bytes.TrimLeft(rest, ": \t\r\n")
		switch {
		case bytes.HasPrefix(answer, null):
		case bytes.HasPrefix(answer, []byte(`"stop"`)), bytes.HasPrefix(answer, []byte(`"length"`)):
			ended = true
		default:
			return false
		}
	}
}

// goodStops are the reasons for which a message ends by itself or at its limit. vLLM gives none for one that
// was aborted.
var goodStops = []string{"end_turn", "stop_sequence", "max_tokens"}

// messageFinished tells it of /v1/messages: the reason stands in the message, or in the event before the
// last.
func messageFinished(answer []byte) bool {
	if !isStream(answer) {
		return slices.Contains(goodStops, textAt(answer, "stop_reason"))
	}
	reason, last := "", ""
	for data := range eventsOf(answer) {
		last = textAt(data, "type")
		if last == "message_delta" {
			delta, _ := member(data, "delta", '{')
			reason = textAt(delta.of(data), "stop_reason")
		}
	}
	return last == "message_stop" && slices.Contains(goodStops, reason)
}

// responseFinished tells it of /v1/responses: the last event of a stream has all of the response.
func responseFinished(answer []byte) bool {
	response := answer
	if isStream(answer) {
		var last []byte
		for data := range eventsOf(answer) {
			last = data
		}
		switch textAt(last, "type") {
		case "response.completed", "response.incomplete":
		default:
			return false
		}
		whole, _ := member(last, "response", '{')
		response = whole.of(last)
	}
	switch textAt(response, "status") {
	case "completed":
		return true
	case "incomplete": // at its limit, or cut off by a filter
		why, _ := member(response, "incomplete_details", '{')
		return textAt(why.of(response), "reason") == "max_output_tokens"
	}
	return false
}

// isStream reports whether an answer is a stream of events: a whole answer is an object.
func isStream(answer []byte) bool {
	answer = bytes.TrimLeft(answer, " \t\r\n")
	return len(answer) > 0 && answer[0] != '{'
}

// eventsOf yields the data of each event of a complete stream.
func eventsOf(stream []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		var cut Events
		for e := range cut.Feed(stream) {
			if data := e.Data(); len(data) > 0 && !yield(data) {
				return
			}
		}
		if data := Event(cut.Pending()).Data(); len(data) > 0 {
			yield(data)
		}
	}
}

// textAt is the text of a member of object, "" where it has none.
func textAt(object []byte, name string) string {
	at, ok := member(object, name, '"')
	if !ok {
		return ""
	}
	return rawjson.Text(at.of(object))
}
