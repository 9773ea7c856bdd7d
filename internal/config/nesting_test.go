package config

import (
	"fmt"
	"strings"
	"testing"
)

// A file that would keep the parser busy for hours is refused before parsing. The error names the place.
func TestFilesThatTheParserCannotBeGiven(t *testing.T) {
	var stairs, keys, many strings.Builder
	for i := range 200 {
		stairs.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	for i := range 10_000 {
		fmt.Fprintf(&keys, "key%d: 1\n", i)
	}
	many.WriteString("pools:\n  prefill:\n    replicas:\n")
	for i := range 2000 {
		fmt.Fprintf(&many, "    - url: http://p%d:8000\r\n      place: {rack: r%d}\r\n", i, i)
	}
	const deep, wide = "is not YAML: it is nested more than 64 deep here",
		"is not YAML: it has an object of more than 1024 keys here"
	for _, tt := range []struct{ name, text, want string }{
		{"lists in lists", strings.Repeat("[", 1<<16), deep},
		{"objects in objects", strings.Repeat("{a: ", 1<<12), deep},
		{"lists in lists by dashes", strings.Repeat("- ", 1<<12), deep},
		{"objects in objects by columns", stairs.String(), deep},
		{"lists in objects", strings.Repeat("a: [", 1<<12), deep},
		{"keys of keys", strings.Repeat("? ", 1<<12), deep},
		{"many keys", keys.String(), wide},
		{"many keys between brackets", "{" + strings.Repeat("a: 1, ", 1<<12) + "}", wide},
		{"many texts", strings.Repeat("a: |\n", 1<<12), wide},
		{
			"as deep as it may be", strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth),
			"is a list where fields belong",
		},
		{
			"many lists one behind the other",
			"x-a:\n" + strings.Repeat("  - [[1], [2]]\n  - {a: {b: 1}, c: 2}\n", 2000), "",
		},
		{"a large fleet", many.String(), ""},
	} {
		_, err := Parse("f.yaml", []byte(tt.text))
		switch {
		case tt.want == "" && err != nil &&
			(strings.Contains(err.Error(), deep) || strings.Contains(err.Error(), wide)):
			t.Errorf("%s: got %v, want no refusal before parsing", tt.name, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: got %.300v, want %q", tt.name, err, tt.want)
		}
	}
}
