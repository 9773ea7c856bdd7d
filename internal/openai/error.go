package openai

import (
	"strconv"

	"tandem/internal/rawjson"
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
