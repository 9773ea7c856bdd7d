package openai

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// answerDepth is how deep an engine's answer may nest; it is trusted to be JSON but not to be small.
const answerDepth = 256

func scanner(data []byte) rawjson.Scanner { return rawjson.Scanner{Data: data, Max: answerDepth} }

func has(data []byte, marker string) bool { return bytes.Contains(data, []byte(marker)) }

// HasError reports whether data (JSON) is an engine's error and with which code, 500 when it names none.
func HasError(data []byte) (code int, ok bool) {
	if !has(data, `"error"`) && !has(data, `"response.failed"`) {
		return 0, false
	}
	code = 500
	s := scanner(data)
	for key := range s.Members() {
		switch value := s.Value(); {
		case rawjson.Equal(key, "error") && len(value) > 0 && !isNull(value):
			ok = true
			code = codeOf(value, code)
		case rawjson.Equal(key, "object") && rawjson.Equal(value, "error"): // the flat shape of old versions
			ok = true
		case rawjson.Equal(key, "type") &&
			(rawjson.Equal(value, "error") || rawjson.Equal(value, "response.failed")):
			// Events of messages and responses.
			ok = true
		case rawjson.Equal(key, "code"):
			code = errorCode(value, code)
		}
	}
	return code, ok
}

func codeOf(object []byte, code int) int {
	s := scanner(object)
	said, kind := false, []byte(nil)
	for key := range s.Members() {
		switch value := s.Value(); {
		case rawjson.Equal(key, "code"):
			code = errorCode(value, code)
			said = true
		case rawjson.Equal(key, "type"):
			kind = value
		}
	}
	if !said { // messages have no codes
		return typeCode(rawjson.Text(kind), code)
	}
	return code
}

func errorCode(value []byte, otherwise int) int {
	if n, err := strconv.Atoi(string(value)); err == nil && 400 <= n && n <= 599 {
		return n
	}
	return otherwise
}

// HasContent reports whether data (JSON of one chunk) carries generated output. A chat's role chunk does not:
// a failed transfer sends one before its error.
func HasContent(data []byte) bool {
	s := scanner(data)
	for key := range s.Members() {
		switch {
		case rawjson.Equal(key, "choices") && s.Peek() == '[':
			for range s.Elements() {
				if choiceHasContent(s.Value()) {
					return true
				}
			}
		case rawjson.Equal(key, "type"):
			if value := s.Value(); strings.HasSuffix(rawjson.Text(value), "delta") { // messages and responses
				return true
			}
		default:
			s.Skip()
		}
	}
	return false
}

// choiceHasContent tells for one choice. A completion's chunk always stands for a token, even when its text
// is still empty.
func choiceHasContent(choice []byte) bool {
	s := scanner(choice)
	for key := range s.Members() {
		value := s.Value()
		if s.Err() != nil {
			return false
		}
		switch string(rawjson.Name(key)) {
		case "text":
			return true
		case "finish_reason", "token_ids":
			if !isEmpty(value) {
				return true
			}
		case "delta", "message":
			if deltaHasContent(value) {
				return true
			}
		}
	}
	return false
}

func deltaHasContent(delta []byte) bool {
	if delta[0] != '{' {
		return false
	}
	s := scanner(delta)
	for key := range s.Members() {
		if value := s.Value(); s.Err() == nil && !rawjson.Equal(key, "role") && !isEmpty(value) {
			return true
		}
	}
	return false
}

// UsageOnly reports whether data is the usage chunk at the end of a stream: usage, and no choices.
func UsageOnly(data []byte) bool {
	if !has(data, `"usage"`) {
		return false
	}
	usage, choices := false, false
	s := scanner(data)
	for key := range s.Members() {
		switch value := s.Value(); {
		case len(value) == 0:
			return false
		case rawjson.Equal(key, "usage"):
			usage = value[0] == '{'
		case rawjson.Equal(key, "choices"):
			choices = !isEmpty(value)
		}
	}
	return usage && !choices
}

// Usage is what an answer says about tokens. Figures that cannot be right are not said.
type Usage struct {
	Prompt, Completion int // 0 when not said
	Cached             int // -1 when not said
}

// usageOf reads a usage object.
func usageOf(raw []byte) (Usage, bool) {
	u := Usage{Cached: -1}
	s := scanner(raw)
	// Tokens that messages count beside input_tokens: read from the cache, and written to the cache.
	apart := 0
	for key := range s.Members() {
		value := s.Value()
		switch string(rawjson.Name(key)) {
		case "cache_creation_input_tokens":
			apart += count(value, 0)
		case "prompt_tokens", "input_tokens":
			u.Prompt = count(value, 0)
		case "completion_tokens", "output_tokens":
			u.Completion = count(value, 0)
		case "prompt_tokens_details", "input_tokens_details":
			u.Cached = cachedOf(value, u.Cached)
		case "cache_read_input_tokens":
			u.Cached = count(value, u.Cached)
			apart += max(u.Cached, 0)
		}
	}
	u.Prompt += apart
	return u, s.Err() == nil
}

func cachedOf(details []byte, otherwise int) int {
	if len(details) == 0 || details[0] != '{' {
		return otherwise
	}
	s := scanner(details)
	for key := range s.Members() {
		if value := s.Value(); rawjson.Equal(key, "cached_tokens") {
			return count(value, otherwise)
		}
	}
	return otherwise
}

// maxTokens is the largest number of tokens that an engine is believed to report of one request. The longest
// contexts hold some ten million.
const maxTokens = 1 << 30

// count reads a number of tokens that an engine reports. It returns otherwise for a value that is
// negative, larger than maxTokens, or not a whole number.
func count(value []byte, otherwise int) int {
	if n, ok := whole(value); ok && 0 <= n && n <= maxTokens {
		return n
	}
	return otherwise
}

// PrefillAnswer is what leg 1 said.
type PrefillAnswer struct {
	Params       []byte // raw kv_transfer_params, nil when null or absent
	PromptTokens int    // 0 when not said
	CachedTokens int    // -1 when not said
	Stopped      bool   // a choice has ended otherwise than at its length
}

// ReadPrefill reads the answer of leg 1. Its slices share body's memory. CachedTokens comes from the transfer
// params where they tell, since usage tells only with --enable-prompt-tokens-details.
func ReadPrefill(body []byte) (PrefillAnswer, error) {
	a := PrefillAnswer{CachedTokens: -1}
	cached := -1
	s := scanner(body)
	for key := range s.Members() {
		switch c := s.Peek(); {
		case c == '{' && string(rawjson.Name(key)) == "kv_transfer_params":
			if params, found := readParams(&s); params != nil {
				a.Params, cached = params, found
			}
		case c == '[' && string(rawjson.Name(key)) == "choices":
			a.Stopped = readStopped(&s)
		case c == '{' && string(rawjson.Name(key)) == "usage":
			if value := s.Value(); value != nil {
				u, _ := usageOf(value)
				a.PromptTokens, a.CachedTokens = u.Prompt, u.Cached
			}
		default:
			s.Skip()
		}
	}
	s.End()
	if cached >= 0 {
		a.CachedTokens = cached
	}
	return a, s.Err()
}

// readStopped consumes the choices of an answer. It reports whether a choice has ended otherwise than at its
// length.
func readStopped(s *rawjson.Scanner) (stopped bool) {
	for range s.Elements() {
		if s.Peek() != '{' {
			s.Skip()
			continue
		}
		for key := range s.Members() {
			text := s.Peek() == '"'
			if value := s.Value(); text && string(rawjson.Name(key)) == "finish_reason" {
				stopped = stopped || !rawjson.Equal(value, "length")
			}
		}
	}
	return stopped
}

// readParams consumes transfer params, and returns the number of cached tokens in them, -1 where there is
// none.
func readParams(s *rawjson.Scanner) (params []byte, cached int) {
	start, told := s.Pos, false
	cached = -1
	for key := range s.Members() {
		if value := s.Value(); !told && rawjson.Equal(key, "remote_prefill_cached_tokens") {
			cached, told = count(value, -1), true
		}
	}
	if s.Err() != nil {
		return nil, -1
	}
	return s.Data[start:s.Pos], cached
}
