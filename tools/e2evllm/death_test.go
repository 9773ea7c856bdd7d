package main

import (
	"slices"
	"strings"
	"testing"
)

// TestDecodeEnginesDieInTurn checks that every engine is a victim once before an engine is a victim again.
func TestDecodeEnginesDieInTurn(t *testing.T) {
	d := &dying{decoders: []string{"d0", "d1", "d2"}}
	var turns []string
	for _, n := range []int{2, 1, 2, 2} {
		turns = append(turns, d.victims(n)...)
	}
	if want := strings.Fields("d0 d1 d2 d0 d1 d2 d0"); !slices.Equal(turns, want) {
		t.Errorf("the victims are %v, want %v", turns, want)
	}
}

// TestAStopStringComesLate checks that the stop string first appears late in the text, so that engines die
// before it.
func TestAStopStringComesLate(t *testing.T) {
	for text, want := range map[string]string{
		"abcdefghi":        "ghi",
		"abcabcabc":        "",    // appears earlier in the text
		"abcdef\ufffdghi":  "ghi", // without bytes that are held back
		"abcdefgh\nijk":    "ijk",
		"":                 "",
		"ab":               "",
		"xyzxyzxyzxyzxyzq": "yzq",
	} {
		if got := lateString(text); got != want {
			t.Errorf("the stop string of %q is %q, want %q", text, got, want)
		}
	}
}
