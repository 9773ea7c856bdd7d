package openai

import (
	"strconv"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// AppendError appends an error body in vLLM's shape; param "" is null.
func AppendError(dst []byte, message, typ, param string, code int) []byte {
	dst = append(dst, `{"error":{"message":`...)
	dst = rawjson.AppendString(dst, message)
	dst = append(dst, `,"type":`...)
	dst = rawjson.AppendString(dst, typ)
	dst = append(dst, `,"param":`...)
	if param == "" {
		dst = append(dst, "null"...)
	} else {
		dst = rawjson.AppendString(dst, param)
	}
	dst = append(dst, `,"code":`...)
	dst = strconv.AppendInt(dst, int64(code), 10)
	return append(dst, "}}"...)
}

// anthropicTypes are the names that Anthropic's API has for statuses. vLLM answers there with names of its
// own.
var anthropicTypes = map[int]string{
	400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
	413: "request_too_large",
	429: "rate_limit_error", 503: "overloaded_error",
}

// vllmTypes are vLLM's, where they stand for one status.
var vllmTypes = map[int]string{
	400: "BadRequestError", 404: "NotFoundError", 429: "RateLimitError", 503: "ServiceUnavailableError",
}

func typeCode(name string, otherwise int) int {
	for code, typ := range anthropicTypes {
		if typ == name {
			return code
		}
	}
	for code, typ := range vllmTypes {
		if typ == name {
			return code
		}
	}
	return otherwise
}

// Error appends an error body in the shape of the kind's API.
func (k Kind) Error(dst []byte, message, typ string, code int) []byte {
	if k != Messages {
		return AppendError(dst, message, typ, "", code)
	}
	typ, ok := anthropicTypes[code]
	if !ok {
		typ = "api_error"
	}
	dst = rawjson.AppendString(append(dst, `{"type":"error","error":{"type":`...), typ)
	dst = rawjson.AppendString(append(dst, `,"message":`...), message)
	return append(dst, "}}"...)
}

// ErrorEvent appends the events that end a stream of the kind's API with an error; sequence is the number of
// events before it, which responses count.
func (k Kind) ErrorEvent(dst []byte, message, typ string, code, sequence int) []byte {
	switch k {
	case Messages:
		dst = k.Error(append(dst, "event: error\ndata: "...), message, typ, code)
		return append(dst, "\n\n"...)
	case Responses:
		dst = rawjson.AppendString(append(dst, `event: error
data: {"type":"error","code":"server_error","message":`...), message)
		dst = strconv.AppendInt(append(dst, `,"param":null,"sequence_number":`...), int64(sequence), 10)
		return append(dst, "}\n\n"...)
	}
	dst = AppendError(append(dst, "data: "...), message, typ, "", code)
	return append(append(dst, "\n\n"...), k.EndMark()...)
}

// EndMark is the event behind an error event with which streams of the kind's API end, "" where they end with
// the error.
func (k Kind) EndMark() string {
	if k == Messages || k == Responses {
		return ""
	}
	return "data: [DONE]\n\n"
}

// Message is what an error body in vLLM's shape says.
func Message(body []byte) string {
	at, ok := member(body, "error", '{')
	if !ok {
		return ""
	}
	said, ok := member(at.of(body), "message", '"')
	if !ok {
		return ""
	}
	return rawjson.Text(said.of(at.of(body)))
}
