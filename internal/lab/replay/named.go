package replay

import (
	"slices"
	"strings"
)

// Named returns what was asked for by name: all of which a name begins with one of the given texts, and
// everything if there is no text. names returns the names of one. unknown is the first text with which no
// name begins, "" if there is none.
func Named[T any](all []T, texts []string, names func(*T) []string) (found []T, unknown string) {
	if len(texts) == 0 {
		return all, ""
	}
	met := make([]bool, len(texts))
	for i := range all {
		wanted := false
		for k, text := range texts {
			begins := func(name string) bool { return strings.HasPrefix(name, text) }
			if slices.ContainsFunc(names(&all[i]), begins) {
				wanted, met[k] = true, true
			}
		}
		if wanted {
			found = append(found, all[i])
		}
	}
	if k := slices.Index(met, false); k >= 0 {
		unknown = texts[k]
	}
	return found, unknown
}
