package openai

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/tandem-router/tandem/internal/rawjson"
)

// MergeModels makes one list of several engines' lists of models. It takes the first list and appends the
// entries of the others with ids that are not there yet. Anything that is not a list adds nothing.
func MergeModels(lists [][]byte) []byte {
	known := map[string]bool{}
	var more [][]byte
	for i, list := range lists {
		eachModel(list, func(id string, entry []byte) {
			if i > 0 && !known[id] {
				more = append(more, entry)
			}
			known[id] = true
		})
	}
	return AddModels(lists[0], more)
}

// KeepModels makes a list of the entries of another list that keep allows, by their ids.
func KeepModels(list []byte, keep func(id string) bool) []byte {
	var kept [][]byte
	eachModel(list, func(id string, entry []byte) {
		if keep(id) {
			kept = append(kept, entry)
		}
	})
	return AddModels([]byte(`{"object":"list","data":[]}`), kept)
}

// eachModel calls see for each entry of a list of models.
func eachModel(list []byte, see func(id string, entry []byte)) {
	s := scanner(list)
	if s.Peek() != '{' {
		return
	}
	for key := range s.Members() {
		if !rawjson.Equal(key, "data") || s.Peek() != '[' {
			s.Skip()
			continue
		}
		for range s.Elements() {
			entry := s.Value()
			if id, _ := Names(entry); s.Err() == nil && id != "" {
				see(id, entry)
			}
		}
	}
}

// AddModels appends entries to a list of models, at its end. Anything that is not a list stays as it is.
func AddModels(list []byte, entries [][]byte) []byte {
	if len(entries) == 0 {
		return list
	}
	start, end := -1, -1 // of the content of data
	s := scanner(list)
	if s.Peek() != '{' {
		return list
	}
	for key := range s.Members() {
		value := s.Value()
		if rawjson.Equal(key, "data") && bytes.HasPrefix(value, []byte{'['}) {
			start, end = s.Pos-len(value)+1, s.Pos-1
		}
	}
	if s.Err() != nil || end < 0 {
		return list
	}
	added := bytes.Join(entries, []byte{','})
	if len(bytes.TrimSpace(list[start:end])) > 0 {
		added = append([]byte{','}, added...)
	}
	return slices.Concat(list[:end], added, list[end:])
}

// ModelEntry returns the router's own entry for a model. most is the longest prompt and answer together, 0
// unknown.
func ModelEntry(id string, most int) []byte {
	entry := rawjson.AppendString([]byte(`{"id":`), id)
	entry = append(entry, `,"object":"model","owned_by":"vllm"`...)
	if most > 0 {
		entry = strconv.AppendInt(append(entry, `,"max_model_len":`...), int64(most), 10)
	}
	return append(entry, '}')
}

// WithModel returns a body with another model. All other bytes stay as they are. The body must be valid.
func WithModel(body []byte, model string) []byte {
	edited := make([]byte, 0, len(body)+len(model)+len(`"",`))
	from := 0
	s := rawjson.Scanner{Data: body}
	for key := range s.Members() {
		value := s.Value()
		if rawjson.Equal(key, "model") {
			edited = rawjson.AppendString(append(edited, body[from:s.Pos-len(value)]...), model)
			from = s.Pos
		}
	}
	return append(edited, body[from:]...)
}
