package replay

import (
	"slices"
	"strings"
)

// Named returns the items with a name that begins with one of the given texts, or all items without a text.
// names returns the names of an item. unknown is the first text with which no name begins, or "".
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
