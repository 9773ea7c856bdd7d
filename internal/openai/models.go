package openai

import "github.com/tandem-router/tandem/internal/rawjson"

// MergeModels makes one list of several engines' lists of models. It takes the first list and appends the
// entries of the others with ids that are not there yet. Anything that is not a list adds nothing.
func MergeModels(lists [][]byte) []byte {
	first := lists[0]
	known := map[string]bool{}
	end := -1 // of the first list's entries
	eachModel(first, func(id string, _ []byte, at int) { known[id], end = true, at })
	if end < 0 {
		return first
	}
	merged := append([]byte(nil), first[:end]...)
	for _, list := range lists[1:] {
		eachModel(list, func(id string, entry []byte, _ int) {
			if !known[id] {
				known[id] = true
				merged = append(append(merged, ','), entry...)
			}
		})
	}
	return append(merged, first[end:]...)
}

// KeepModels makes a list of the entries of another list that keep allows, by their ids.
func KeepModels(list []byte, keep func(id string) bool) []byte {
	kept := []byte(`{"object":"list","data":[`)
	first := true
	eachModel(list, func(id string, entry []byte, _ int) {
		if !keep(id) {
			return
		}
		if !first {
			kept = append(kept, ',')
		}
		first = false
		kept = append(kept, entry...)
	})
	return append(kept, "]}"...)
}

// eachModel calls see for each entry of a list of models, with where it ends.
func eachModel(list []byte, see func(id string, entry []byte, end int)) {
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
				see(id, entry, s.Pos)
			}
		}
	}
}
