package openai

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// Reasons why the answer to a request is not kept for others that ask the same.
const (
	NotSame       = "not_deterministic" // temperature is not 0, and no seed is fixed where that is enough
	SeveralAsked  = "several"           // several prompts, or several answers
	ToolsAsked    = "tools"
	MediaAsked    = "media" // tomorrow the address may lead to another picture
	StoreAsked    = "store" // what an engine keeps of the answer, or has kept of earlier ones, takes part
	UnknownMember = "unknown_field"
)

// Repeat says which requests are taken to get the same answer each time.
type Repeat struct {
	Seeded bool // requests with a seed too, at any temperature
	// Kept answers outlive their engines: then an answer must not name state that its engine keeps.
	Outlives bool
}

// Repeatable returns all parts of the request on which its answer depends, as canonical JSON. Two requests
// have the same canonical JSON if they differ only in the order of members, in white space, in how texts are
// escaped, and in the user's identity. Such requests mean the same to every engine. why says why a second
// answer may differ and still be correct; it is "" if no second answer can differ.
//
// The list names the allowed members: an unknown member may mean anything.
func (r *Request) Repeatable(rule Repeat) (canonical []byte, why string) {
	switch {
	case r.Batched || r.N != 1:
		return nil, SeveralAsked
	case r.Multimodal:
		return nil, MediaAsked
	case r.Tools:
		return nil, ToolsAsked
	case r.storeAsked(rule):
		return nil, StoreAsked
	case rawjson.Torn(r.Raw), // half a surrogate pair is no text that another could be the same as
		deep(r.Raw):
		return nil, UnknownMember
	}
	list, why := r.question(rule)
	if why != "" {
		return nil, why
	}
	if len(r.Prompts) == 1 && r.Prompts[0].IDs != nil { // there can be very many
		i := slices.IndexFunc(list, func(m asked) bool { return m.name == "prompt" })
		list[i].value, list[i].plain = AppendIDs(nil, r.Prompts[0].IDs), true
	}
	return appendMembers(make([]byte, 0, len(r.Raw)), list, ""), ""
}

// question returns the members that the answer depends on, in order, where it is the same each time.
func (r *Request) question(rule Repeat) (list []asked, why string) {
	all := inOrder(r.asked())
	same, list := false, make([]asked, 0, len(all))
	for _, m := range all {
		name, value := m.name, m.value
		switch {
		case name == "temperature":
			zero, _ := isZero(value)
			same = same || zero
		case name == "seed" && r.Kind != Messages: // which has none
			_, ok := whole(value)
			same = same || ok && rule.Seeded
		case !r.repeats(name, value):
			return nil, UnknownMember
		}
		if !slices.Contains(r.Kind.whoAsks(), name) {
			list = append(list, m)
		}
	}
	if !same {
		return nil, NotSame
	}
	return list, ""
}

// maxDepth is how deep a question may nest. Each level is read once more to be written in its canonical
// form, so that depth multiplies what a long request costs.
const maxDepth = 32

// deep reports whether a request nests deeper.
func deep(body []byte) bool {
	s := rawjson.Scanner{Data: body, Max: maxDepth}
	s.Skip()
	return s.Err() != nil
}

// asked is one member of an object, its name without escapes.
type asked struct {
	name  string
	value []byte
	plain bool // the value is canonical as it is
}

// asked are the members of the request, as they came.
func (r *Request) asked() []asked {
	all := make([]asked, len(r.fields))
	for i, f := range r.fields {
		all[i] = asked{name: string(rawjson.Name(f.key.of(r.Raw))), value: f.value.of(r.Raw)}
	}
	return all
}

// inOrder sorts members by their names and keeps the last of each, which is the one that counts. A client can
// send very many.
func inOrder(all []asked) []asked {
	slices.SortStableFunc(all, func(a, b asked) int { return strings.Compare(a.name, b.name) })
	kept := all[:0]
	for i, m := range all {
		if i+1 == len(all) || all[i+1].name != m.name {
			kept = append(kept, m)
		}
	}
	return kept
}

// whoAsks lists the members that name the user, the urgency and the session. They change no engine's answer.
// The key and the salt decide which users may share answers.
func (k Kind) whoAsks() []string {
	switch k {
	case Messages:
		return whoAsksMessages
	case Responses:
		return whoAsksResponses
	}
	return whoAsks
}

var whoAsks = []string{
	"user", "metadata", "store", "safety_identifier", "prompt_cache_key", "priority", "session_id",
}

// repeated are the members with a known meaning, beyond the members that a continued stream may have.
var repeated = []string{
	"stop", "include_stop_str_in_output", "return_token_ids", "presence_penalty", "frequency_penalty",
	"spaces_between_special_tokens", "n", "best_of", "response_format", "structured_outputs", "logprobs",
	"top_logprobs", "echo", "suffix",
}

// repeats reports whether a member is known not to make answers differ from time to time.
func (r *Request) repeats(name string, value []byte) bool {
	if r.Kind == Messages || r.Kind == Responses {
		return r.Kind.repeats(name, value)
	}
	if name == "tool_choice" {
		return rawjson.Equal(value, "none") || isNull(value)
	}
	return slices.Contains(continues, name) || slices.Contains(repeated, name) || isEmpty(value)
}

// appendMembers appends an object of members that stand in order, which is the value of a member called of.
func appendMembers(dst []byte, list []asked, of string) []byte {
	dst = append(dst, '{')
	for i, m := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(rawjson.AppendString(dst, m.name), ':')
		if m.plain {
			dst = append(dst, m.value...)
			continue
		}
		dst = appendCanonical(dst, m.value, m.name, of)
	}
	return append(dst, '}')
}

// unordered are the members of a request with objects that mean the same in any order. A schema is not among
// them: engines generate in its order. Nor are a template's arguments and documents: a template may write
// their members in the order of the request.
var unordered = []string{"messages", "content", "stream_options", "logit_bias"}

// reals are the members that are read as floating point numbers.
var reals = []string{
	"temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty",
}

// appendCanonical appends value, any valid JSON. value belongs to the member called name of an object. That
// object is itself the value of a member called of.
func appendCanonical(dst, value []byte, name, of string) []byte {
	switch value[0] {
	case '"':
		return rawjson.AppendString(dst, rawjson.Text(value))
	case '[':
		return appendArray(dst, value, name, of)
	case '{':
		return appendObject(dst, value, name, of)
	}
	if of == "" && slices.Contains(reals, name) {
		return appendReal(dst, value)
	}
	return append(dst, value...)
}

func appendArray(dst, value []byte, name, of string) []byte {
	dst = append(dst, '[')
	s := scanner(value)
	for i := range s.Elements() {
		if i > 0 {
			dst = append(dst, ',')
		}
		element := s.Value()
		if len(element) == 0 {
			break
		}
		dst = appendCanonical(dst, element, name, of)
	}
	return append(dst, ']')
}

func appendObject(dst, value []byte, name, of string) []byte {
	ordered := !slices.Contains(unordered, name) || of != "" && (of != "messages" || name != "content")
	var list []asked
	s := scanner(value)
	for key := range s.Members() {
		m := asked{name: string(rawjson.Name(key)), value: s.Value()}
		if len(m.value) == 0 {
			break
		}
		list = append(list, m)
	}
	if name == "logit_bias" && slices.ContainsFunc(list, func(m asked) bool { return !numeral(m.name) }) {
		ordered = true
	}
	if !ordered {
		list = inOrder(list)
	}
	inside := name
	if ordered {
		inside = "." // nothing in it is known
	}
	return appendMembers(dst, list, inside)
}

// numeral reports whether name is a number as it is usually written. vLLM reads the names in a logit_bias as
// Python does: of "1" and "01" the last one counts.
func numeral(name string) bool {
	n, err := strconv.ParseUint(name, 10, 63)
	return err == nil && strconv.FormatUint(n, 10) == name
}

// appendReal appends a number in the one form that it has as a floating point number.
func appendReal(dst, value []byte) []byte {
	f, err := strconv.ParseFloat(string(value), 64)
	if err != nil {
		return append(dst, value...)
	}
	return strconv.AppendFloat(dst, f+0, 'g', -1, 64) // -0 is 0
}

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
