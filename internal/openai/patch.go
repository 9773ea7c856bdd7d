package openai

import (
	"bytes"
	"slices"
	"strconv"

	"tandem/internal/rawjson"
)

// patch is a byte range and what takes its place.
type patch struct {
	at   span
	with []byte
}

// apply appends data with the patches, which are ascending and disjoint, to dst.
func apply(dst, data []byte, patches []patch) []byte {
	pos := 0
	for _, p := range patches {
		dst = append(dst, data[pos:p.at.start]...)
		dst = append(dst, p.with...)
		pos = p.at.end
	}
	return append(dst, data[pos:]...)
}

// payload returns where the JSON is in data: all of it, or the data of a whole event.
func payload(data []byte) span {
	if trimmed := bytes.TrimLeft(data, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '{' {
		return span{len(data) - len(trimmed), len(data)}
	}
	for at := range Event(data).dataLines() {
		return at
	}
	return span{0, 0}
}

// PatchUsage appends data, a body, a chunk's data or a whole event, to dst with the cached tokens of its usage set to cached:
// prompt_tokens_details.cached_tokens, input_tokens_details.cached_tokens of responses, or cache_read_input_tokens of messages.
// Without those nothing is appended and ok is false.
func PatchUsage(dst, data []byte, cached int) (out []byte, ok bool) {
	switch {
	case has(data, `"prompt_tokens_details"`), has(data, `"input_tokens_details"`):
	case has(data, `"cache_read_input_tokens"`):
		return patchMessage(dst, data, cached)
	default:
		return dst, false
	}
	at := payload(data)
	place, before, after, ok := cachedAt(at.of(data))
	if !ok {
		return dst, false
	}
	var room [48]byte
	with := append(strconv.AppendInt(append(room[:0], before...), int64(cached), 10), after...)
	return apply(dst, data, []patch{{span{at.start + place.start, at.start + place.end}, with}}), true
}

// cachedAt returns where the number of cached tokens is, or is to be put with before and after around it.
func cachedAt(data []byte) (at span, before, after string, ok bool) {
	usage, ok := usageAt(data)
	if !ok {
		return at, "", "", false
	}
	details, ok := member(usage.of(data), "prompt_tokens_details", '{')
	if !ok {
		details, ok = member(usage.of(data), "input_tokens_details", '{')
	}
	if !ok {
		return at, "", "", false
	}
	start := usage.start + details.start
	object := details.of(usage.of(data))
	if value, ok := member(object, "cached_tokens", 0); ok {
		return span{start + value.start, start + value.end}, "", "", true
	}
	if !isEmpty(object) {
		after = ","
	}
	return span{start + 1, start + 1}, `"cached_tokens":`, after, true
}

// usageAt returns where the usage object is, at the top or in the response that an event wraps.
func usageAt(data []byte) (at span, ok bool) {
	if at, ok = member(data, "usage", '{'); ok {
		return at, true
	}
	inside, ok := member(data, "response", '{')
	if !ok {
		return at, false
	}
	at, ok = member(inside.of(data), "usage", '{')
	return span{inside.start + at.start, inside.start + at.end}, ok
}

// patchMessage does it for messages, whose input_tokens are what the cache had not, so that the sum stays.
func patchMessage(dst, data []byte, cached int) (out []byte, ok bool) {
	at := payload(data)
	object := at.of(data)
	usage, ok := usageAt(object)
	if !ok {
		return dst, false
	}
	values := usage.of(object)
	base := at.start + usage.start
	read, ok := member(values, "cache_read_input_tokens", 0)
	was := count(read.of(values), -1)
	if !ok || was < 0 {
		return dst, false
	}
	patches := []patch{{span{base + read.start, base + read.end}, strconv.AppendInt(nil, int64(cached), 10)}}
	input, found := member(values, "input_tokens", 0)
	if rest := count(input.of(values), -1) + was - cached; found && rest >= 0 {
		patches = append(patches, patch{span{base + input.start, base + input.end}, strconv.AppendInt(nil, int64(rest), 10)})
		slices.SortFunc(patches, func(a, b patch) int { return a.at.start - b.at.start })
	}
	return apply(dst, data, patches), true
}

// member returns where in object the value of the member is, if it begins with open (0: any) and object is valid JSON.
func member(object []byte, name string, open byte) (at span, ok bool) {
	s := scanner(object)
	for key := range s.Members() {
		s.Peek()
		start := s.Pos
		s.Skip()
		if s.Err() == nil && rawjson.Equal(key, name) {
			at, ok = span{start, s.Pos}, open == 0 || object[start] == open
		}
	}
	return at, ok && s.Err() == nil
}

// NeedsScrub reports whether data may hold transfer params, so that a stream can pass its chunks on without copying.
func NeedsScrub(data []byte) bool { return ScrubAt(data) >= 0 }

// ScrubAt returns where the first of what NeedsScrub tells of is, or -1.
func ScrubAt(data []byte) int { return bytes.Index(data, scrubMark) }

var scrubMark = []byte(`_transfer_params"`)

// Scrub appends an engine's answer (a body, a chunk's data or a whole event) to dst with the values of transfer params made null: those at the top, and
// those in the answer that an event wraps.
func Scrub(dst, data []byte) []byte {
	if !NeedsScrub(data) {
		return append(dst, data...)
	}
	at := payload(data)
	return apply(dst, data, scrubs(nil, at.of(data), at.start))
}

// scrubs appends the patches that make transfer params in data null; base is where data begins. Of what is not JSON it takes what comes before the fault.
func scrubs(patches []patch, data []byte, base int) []patch {
	s := scanner(data)
	for key := range s.Members() {
		c := s.Peek()
		at := span{start: s.Pos}
		s.Skip()
		at.end = s.Pos
		switch {
		case s.Err() != nil:
		case forbidden(key) && c != 'n':
			patches = append(patches, patch{span{base + at.start, base + at.end}, []byte("null")})
		case c == '{' && wrapper(key):
			patches = scrubs(patches, at.of(data), base+at.start)
		}
	}
	return patches
}
