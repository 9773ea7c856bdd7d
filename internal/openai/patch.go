package openai

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/tandem-router/tandem/internal/rawjson"
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

// payload returns where the JSON is in data: all bytes, or the data of a whole event.
func payload(data []byte) span {
	if trimmed := bytes.TrimLeft(data, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '{' {
		return span{len(data) - len(trimmed), len(data)}
	}
	for at := range Event(data).dataLines() {
		return at
	}
	return span{0, 0}
}

// CachedPrompt counts the tokens of a prompt that an engine found in its prefix cache (Found), and the
// tokens that it has added to the cache since (Added). -1 is unknown.
type CachedPrompt struct{ Found, Added int }

// details are the objects of a usage that contain a CachedPrompt, and the names of its numbers.
var details = [...]struct{ object, found, added string }{
	{"prompt_tokens_details", "cached_tokens", "created_cache_tokens"},
	{"input_tokens_details", "cached_tokens", "cache_write_tokens"},
}

// detailPatches returns the patches of a usage that reports its cached tokens in an object.
func detailPatches(usage []byte, cached CachedPrompt) []patch {
	for _, name := range details {
		at, ok := member(usage, name.object, '{')
		if !ok {
			continue
		}
		object := at.of(usage)
		patches := []patch{setFound(object, name.found, cached.Found)}
		if added, told := countAt(object, name.added); told && cached.Added >= 0 {
			patches = append(patches, patch{added, strconv.AppendInt(nil, int64(cached.Added), 10)})
		}
		return moved(patches, at.start)
	}
	return nil
}

// moved returns the patches of something that begins by bytes further on.
func moved(patches []patch, by int) []patch {
	for i := range patches {
		patches[i].at.start += by
		patches[i].at.end += by
	}
	return patches
}

// setFound sets a member of object to n: it replaces the member, or adds it in front.
func setFound(object []byte, name string, n int) patch {
	value := strconv.AppendInt(nil, int64(n), 10)
	if at, ok := member(object, name, 0); ok {
		return patch{at, value}
	}
	value = slices.Concat([]byte(`"`+name+`":`), value)
	if !isEmpty(object) {
		value = append(value, ',')
	}
	return patch{span{1, 1}, value}
}

// messagePatches returns the patches of the usage of messages. Its input_tokens excludes the tokens found in
// the cache and the tokens added to it: the sum stays. If the sum cannot stay, there are no patches: the
// engine has found less than cached says, and what was added is unknown.
func messagePatches(usage []byte, cached CachedPrompt) []patch {
	found, ok := countAt(usage, "cache_read_input_tokens")
	if !ok {
		return nil
	}
	rest := count(found.of(usage), 0) - cached.Found
	patches := []patch{{found, strconv.AppendInt(nil, int64(cached.Found), 10)}}
	if added, told := countAt(usage, "cache_creation_input_tokens"); told && cached.Added >= 0 {
		rest += count(added.of(usage), 0) - cached.Added
		patches = append(patches, patch{added, strconv.AppendInt(nil, int64(cached.Added), 10)})
	}
	input, told := countAt(usage, "input_tokens")
	if !told {
		return patches
	}
	if rest += count(input.of(usage), 0); rest < 0 {
		return nil
	}
	return append(patches, patch{input, strconv.AppendInt(nil, int64(rest), 10)})
}

// countAt returns where in object the member is that is a number of tokens.
func countAt(object []byte, name string) (at span, ok bool) {
	at, ok = member(object, name, 0)
	return at, ok && count(at.of(object), -1) >= 0
}

// member returns where in object the value of the member is, if it begins with open (0: any) and object is
// valid JSON.
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

// NeedsScrub reports whether data may hold transfer params, so that a stream can pass its chunks on without
// copying.
func NeedsScrub(data []byte) bool { return ScrubAt(data) >= 0 }

// ScrubAt returns the place of the first sign of transfer params in data, or -1.
func ScrubAt(data []byte) int { return bytes.Index(data, scrubMark) }

var scrubMark = []byte(`_transfer_params"`)

// Scrub appends an engine's answer (a body, a chunk's data or a whole event) to dst with the values of
// transfer params set to null, at the top and in an answer inside an event. In data that is not JSON it
// scrubs only the part before the fault.
func Scrub(dst, data []byte) []byte {
	if !NeedsScrub(data) {
		return append(dst, data...)
	}
	f := Kind(0).Find(data)
	return apply(dst, data, sorted(f.secrets))
}
