package openai

import (
	"bytes"
	"slices"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// The router asks an engine for the usage of a streamed answer, whether the client asked or not. vLLM then
// sends a usage chunk behind the answer, and names itself there instead of in the chunk with the finish
// reason: the last message of a stream bears system_fingerprint. All else stays as it is. So the router
// leaves the usage chunk out and moves the fingerprint back, and a client that did not ask gets its usual
// stream.

// AskUsage asks for usage behind the answer, and nowhere else: what the client had in stream_options goes, as
// a continuous_usage_stats of its own would begin to work.
func (e *Edit) AskUsage() { e.Set("stream_options", askUsage) }

var askUsage = []byte(`{"include_usage":true}`)

// FinishAt returns where the first chunk in b may be that has a finish reason, or -1.
func FinishAt(b []byte) int { return saysAt(b, finishTail) }

// UsageAt returns where the first chunk in b may be that has a usage, or -1. A usage that is null says
// nothing.
func UsageAt(b []byte) int { return saysAt(b, usageTail) }

var (
	finishTail = []byte(`finish_reason"`) // is found faster without its first quote: quotes are everywhere
	usageTail  = []byte(`usage"`)
	nullValue  = []byte(":null")
)

// saysAt returns where b has a member with a name that ends so and a value other than null, or -1.
func saysAt(b, tail []byte) int {
	for at := 0; ; {
		i := bytes.Index(b[at:], tail)
		if i < 0 {
			return -1
		}
		if at += i + len(tail); !bytes.HasPrefix(b[at:], nullValue) {
			return at - len(tail)
		}
	}
}

// Finishes reports whether data (JSON of one chunk) has the finish reason of a choice.
func Finishes(data []byte) bool {
	if FinishAt(data) < 0 {
		return false
	}
	s := scanner(data)
	finishes := false
	for key := range s.Members() {
		if !rawjson.Equal(key, "choices") || s.Peek() != '[' {
			s.Skip()
			continue
		}
		for range s.Elements() {
			finishes = choiceFinishes(s.Value()) || finishes
		}
	}
	return finishes && s.Err() == nil
}

func choiceFinishes(choice []byte) bool {
	at, ok := member(choice, "finish_reason", 0)
	return ok && !isNull(at.of(choice))
}

// Fingerprint returns the raw system_fingerprint of data (JSON of one chunk), nil where it has none.
func Fingerprint(data []byte) []byte {
	at, ok := member(data, "system_fingerprint", '"')
	if !ok {
		return nil
	}
	return at.of(data)
}

// AppendNamed appends an event with a raw system_fingerprint, in the place of its own that is null or behind
// all else that is in it. One that it has stays, and so does an event that is no JSON object.
func AppendNamed(dst []byte, e Event, fingerprint []byte) []byte {
	in := payload(e)
	data := in.of(e)
	own, named := member(data, "system_fingerprint", 0)
	switch {
	case len(fingerprint) == 0, named && !isNull(own.of(data)):
		return append(dst, e...)
	case named:
		return apply(dst, e, moved([]patch{{own, fingerprint}}, in.start))
	}
	end, empty := endOf(data)
	if end < 0 {
		return append(dst, e...)
	}
	name := []byte(`,"system_fingerprint":`)
	if empty {
		name = name[1:]
	}
	return apply(dst, e, moved([]patch{{span{end, end}, slices.Concat(name, fingerprint)}}, in.start))
}

// endOf returns where the closing brace of an object is, -1 where data is none, and whether it has no member.
func endOf(data []byte) (at int, empty bool) {
	s := scanner(data)
	empty = true
	for range s.Members() {
		empty = false
		s.Skip()
	}
	if s.Err() != nil {
		return -1, false
	}
	return s.Pos - 1, empty
}
