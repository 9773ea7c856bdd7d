package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// A former field does not exist any more. A moved field is at the place that its error names.
func TestFormerFieldsAreGone(t *testing.T) {
	var now []string
	for _, f := range fields() {
		now = append(now, f.path)
	}
	sections := map[reflect.Type]string{
		reflect.TypeFor[Pool](): "pools.POOL", reflect.TypeFor[Scoring](): "scoring",
		reflect.TypeFor[Routers](): "routers", reflect.TypeFor[Experimental](): "experimental",
		reflect.TypeFor[ExperimentalScoring](): "experimental.scoring",
	}
	moved := 0
	for f, became := range former {
		section, ok := sections[f.of]
		if !ok {
			t.Fatalf("sections lacks %v", f.of)
		}
		if slices.Contains(keysOf(f.of), f.key) {
			t.Errorf("%s of %v is listed as former, but still exists", f.key, f.of)
		}
		old := join(section, f.key)
		message, fix := became(old)
		if message != "has moved to experimental."+old {
			continue
		}
		moved++
		if !slices.ContainsFunc(now, func(path string) bool { return under(path, "experimental."+old) }) {
			t.Errorf("got %s: %s; %s, but the field at the new place does not exist", old, message, fix)
		}
	}
	if moved != 3 {
		t.Errorf("got %d moved fields, want 3", moved)
	}
}

func under(path, field string) bool { return path == field || strings.HasPrefix(path, field+".") }

// The text that the error of a moved field proposes is valid, and has the meaning of the old field.
func TestMovedFieldIsReadWhereItsErrorSays(t *testing.T) {
	if got, want := nested("experimental.scoring.speed"), "experimental: {scoring: {speed: ...}}"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	c, err := Parse("a.yaml", []byte("experimental: {scoring: {units: raw}}"))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Experimental.Scoring.Units; got != Raw {
		t.Errorf("got units %q, want %q", got, Raw)
	}
}
