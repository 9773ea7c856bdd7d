package replay

import (
	"slices"
	"testing"
)

// Each text selects everything whose name begins with the text. A text that selects nothing is returned as
// unknown.
func TestNamed(t *testing.T) {
	all := []string{"agents/4D", "agents/12P4D", "azure/4D"}
	names := func(s *string) []string { return []string{*s, *s + "/0.5"} }
	for _, tt := range []struct {
		texts   []string
		found   []string
		unknown string
	}{
		{nil, all, ""},
		{[]string{"agents"}, all[:2], ""},
		{[]string{"agents/4D/0.5", "az"}, []string{all[0], all[2]}, ""},
		{[]string{"azure", "luck"}, all[2:], "luck"},
		{[]string{"luck"}, nil, "luck"},
	} {
		if found, unknown := Named(all, tt.texts, names); !slices.Equal(found, tt.found) || unknown != tt.unknown {
			t.Errorf("%v: found %v, unknown %q", tt.texts, found, unknown)
		}
	}
}
