package openai

import (
	"bytes"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// reading holds what members said until all are known.
type reading struct {
	maxTokens, maxCompletion number
	options                  bool // stream_options is there and not empty
	otherOptions             bool // and has a member that is not known
	embeds                   bool // prompt_embeds is there
	echo, logprobs           bool
}

// number is an optional integer.
type number struct {
	value     int
	set, null bool
}

// read takes note of a member of the request.
//
// Long: a case a field.
func (p *parser) read(name, value []byte) {
	r := p.req
	if r.Kind == Messages || r.Kind == Responses {
		p.readConversation(name, value)
		return
	}
	switch string(name) {
	case "model":
		r.Model = p.text("model", value)
	case "cache_salt":
		p.salt(value)
	case "stream":
		r.Stream = p.flag("stream", value)
	case "stream_options":
		p.streamOptions(value)
	case "max_tokens":
		p.maxTokens = p.integer("max_tokens", value)
	case "max_completion_tokens":
		p.maxCompletion = p.integer("max_completion_tokens", value)
	case "n":
		p.sequences("n", value)
	case "best_of":
		p.sequences("best_of", value)
	case "use_beam_search", "echo":
		if p.flag(string(name), value) {
			p.echo = p.echo || string(name) == "echo"
			p.unsplittable(string(name))
		}
	case "logprobs":
		p.logprobs = !isNull(value)
	case "prompt_logprobs", "prompt_embeds", "truncate_prompt_tokens":
		if !isNull(value) {
			p.embeds = p.embeds || string(name) == "prompt_embeds"
			p.req.Uncached = p.req.Uncached || string(name) == "prompt_logprobs"
			p.unsplittable(string(name))
		}
	case "suffix":
		if !isEmpty(value) {
			p.unsplittable("suffix")
		}
	case "stop", "request_id":
		p.encodable(string(name), value)
	default:
		p.readChat(name, value)
	}
}

// readChat takes note of the members that take part in making a chat's prompt.
func (p *parser) readChat(name, value []byte) {
	if p.req.Kind != Chat || isEmpty(value) {
		return
	}
	switch string(name) {
	case "chat_template", "reasoning_effort", "reasoning", "thinking", "tool_choice", "add_generation_prompt",
		"continue_final_message",
		"add_special_tokens", "mm_processor_kwargs", "media_io_kwargs":
		p.req.Templated = true
	}
}

// readOpaque does the same for members whose values are not walked.
func (p *parser) readOpaque(name, value []byte) {
	if p.req.Kind == Messages || p.req.Kind == Responses {
		p.readConversation(name, value)
		return
	}
	if string(name) == "structured_outputs" && value[0] != '{' && !isNull(value) {
		p.refuse("structured_outputs", "structured_outputs must be an object") // vLLM answers 500
	}
	if p.req.Kind != Chat || isEmpty(value) {
		return
	}
	switch string(name) {
	case "tools", "functions":
		p.req.Tools, p.req.Templated = true, true
	case "documents", "chat_template_kwargs", "response_format":
		p.req.Templated = true
	}
}

func (p *parser) text(name string, value []byte) string {
	if isNull(value) {
		return ""
	}
	if value[0] != '"' {
		p.refuse(name, name+" must be a string")
		return ""
	}
	return rawjson.Text(value)
}

// salt reads cache_salt. Half a surrogate pair is refused: the engine would have to hash what cannot be
// encoded.
func (p *parser) salt(value []byte) {
	salt := p.text("cache_salt", value)
	if isNull(value) {
		p.req.CacheSalt = ""
		return
	}
	if salt == "" || strings.ContainsRune(salt, utf8.RuneError) {
		p.refuse("cache_salt", "Parameter 'cache_salt' must be a non-empty string if provided.")
	}
	p.req.CacheSalt = salt
}

// encodable refuses half a surrogate pair where it makes vLLM answer 500.
func (p *parser) encodable(name string, value []byte) {
	if rawjson.Torn(value) {
		p.refuse(name, name+" has half of a surrogate pair, which is no text")
	}
}

func (p *parser) flag(name string, value []byte) bool {
	v, ok := truth(value)
	if !ok {
		p.refuse(name, name+" must be a boolean")
	}
	return v
}

func (p *parser) integer(name string, value []byte) number {
	if isNull(value) {
		return number{null: true}
	}
	v, ok := whole(value)
	if !ok {
		p.refuse(name, name+" must be an integer")
	}
	return number{value: v, set: true}
}

func (p *parser) sequences(name string, value []byte) {
	n := p.integer(name, value)
	if n.null {
		return
	}
	if most := p.lim.Samples; most > 0 && n.value > most {
		p.refuse(name, TooManySamples(name, most))
	}
	if n.value != 1 {
		p.unsplittable(name + " other than 1")
	}
	p.req.N = max(p.req.N, min(n.value, 1<<16))
}

// TooManySamples returns the error text for a request that asks for more than most answers.
func TooManySamples(param string, most int) string {
	return param + " is larger than " + strconv.Itoa(most) +
		", the most answers that this router lets one request ask for (limits.samples)"
}

func (p *parser) streamOptions(value []byte) {
	p.req.IncludeUsage = false
	p.req.ContinuousUsage = false
	p.options, p.otherOptions = false, false
	if isNull(value) {
		return
	}
	if value[0] != '{' {
		p.refuse("stream_options", "stream_options must be an object")
		return
	}
	s := rawjson.Scanner{Data: value}
	for key := range s.Members() {
		p.options = true
		switch v := s.Value(); string(rawjson.Name(key)) {
		case "include_usage":
			p.req.IncludeUsage = p.flag("stream_options.include_usage", v)
		case "continuous_usage_stats":
			p.req.ContinuousUsage = p.flag("stream_options.continuous_usage_stats", v)
		default:
			p.otherOptions = true
		}
	}
}

func isNull(value []byte) bool { return string(value) == "null" }

// isEmpty reports whether value says nothing: null, false, or an empty string, array or object.
func isEmpty(value []byte) bool {
	switch string(value) {
	case "null", "false", `""`:
		return true
	}
	open := value[0] == '[' || value[0] == '{'
	return open && len(bytes.TrimSpace(value[1:len(value)-1])) == 0
}

// truth reads a boolean as pydantic's lax mode does; null is false.
func truth(value []byte) (v, ok bool) {
	switch string(value) {
	case "true":
		return true, true
	case "false", "null":
		return false, true
	}
	if len(value) > 0 && value[0] == '"' {
		return word(rawjson.Text(value))
	}
	n, ok := whole(value)
	return n == 1, ok && (n == 0 || n == 1)
}

func word(s string) (v, ok bool) {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "1", "on", "t", "true", "y", "yes":
		return true, true
	case "0", "off", "f", "false", "n", "no":
		return false, true
	}
	return false, false
}

// whole reads an integer as pydantic's lax mode does: 2, 2.0, "2" and true are integers. Beyond 2^53 it stops
// at that.
func whole(value []byte) (v int, ok bool) {
	text := string(value)
	switch {
	case text == "": // no member
		return 0, false
	case text == "true":
		return 1, true
	case text == "false":
		return 0, true
	case len(value) > 0 && value[0] == '"':
		text = strings.TrimSpace(rawjson.Text(value))
	}
	if n, err := strconv.Atoi(text); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil && !math.IsInf(f, 0) || f != math.Trunc(f) || math.IsNaN(f) {
		return 0, false
	}
	return int(max(-1<<53, min(f, 1<<53))), true
}
