package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// A former field no longer exists, and a moved field is at the place that its error names. So no old name
// is silently accepted, and no error names a place that does not exist.
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
			t.Fatalf("no section of %v", f.of)
		}
		if slices.Contains(keysOf(f.of), f.key) {
			t.Errorf("%s is listed as removed from %v, but exists", f.key, f.of)
		}
		old := join(section, f.key)
		message, fix := became(old)
		if message != "has moved to experimental."+old {
			continue
		}
		moved++
		if !slices.ContainsFunc(now, func(path string) bool { return under(path, "experimental."+old) }) {
			t.Errorf("%s: %s; %s, but that field does not exist", old, message, fix)
		}
	}
	if moved != 3 {
		t.Errorf("%d fields have moved, want 3", moved)
	}
}

func under(path, field string) bool { return path == field || strings.HasPrefix(path, field+".") }

// The text that an error about a moved field proposes is valid, and means the same as the old field.
func TestMovedFieldIsReadWhereItsErrorSays(t *testing.T) {
	if got, want := nested("experimental.scoring.speed"), "experimental: {scoring: {speed: ...}}"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	c, err := Parse("a.yaml", []byte("experimental: {scoring: {units: raw}}"))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Experimental.Scoring.Units; got != Raw {
		t.Errorf("units are %q", got)
	}
}
