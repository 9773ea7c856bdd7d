package config

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A configuration that Validate accepts is the same after it was written as YAML and read, for any texts and
// numbers.
func TestWhatIsValidComesBack(t *testing.T) {
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		c := drawConfig(t)
		if c.Validate() != nil {
			return
		}
		accepted++
		text, err := c.YAML()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse("r.yaml", text)
		if err != nil {
			t.Fatalf("got %v from reading, want no error, for\n%s", err, text)
		}
		if !reflect.DeepEqual(c, again) {
			t.Fatalf("got changes %v, want none, for\n%s", Diff(c, again), text)
		}
		if changes := Diff(c, again); len(changes) > 0 {
			t.Fatalf("got changes %v between equal configurations, want none", changes)
		}
	})
	if accepted < 10 {
		t.Errorf("got %d valid configurations, want at least 10, or the test shows little", accepted)
	}
}

// drawConfig gives some leaves a random value. The other leaves keep their defaults.
func drawConfig(t *rapid.T) *Config {
	c := Default()
	for i, p := range []*Pool{&c.Pools.Prefill, &c.Pools.Decode} {
		for _, u := range urls[i][:rapid.IntRange(0, 3).Draw(t, "replicas")] {
			p.Replicas = append(p.Replicas, Replica{URL: u})
		}
	}
	if rapid.Bool().Draw(t, "keys") {
		c.APIKeys = []Secret{{Env: rapid.StringN(1, 9, -1).Draw(t, "env")}}
	}
	if n := rapid.IntRange(0, 3).Draw(t, "peers"); n > 0 {
		c.Routers.Peers = urls[0][:n]
	}
	drawFields(t, reflect.ValueOf(c).Elem(), "")
	return c
}

var urls = [2][]string{
	{"http://a:1", "https://c", "http://[::1]:8000"}, {"http://127.0.0.1:9", "https://b:1", "http://d.internal"},
}

// free lists the text fields that accept almost any text. Other fields have few valid values; the full file
// has these values.
var free = []string{"host", "rack", "zone", "topic", "ca", "server_name", "file", "env"}

func drawFields(t *rapid.T, v reflect.Value, path string) {
	for k, at := range fieldsOf(v.Type()) {
		f, field := v.FieldByIndex(at.Index), join(path, k)
		if k == "shared" || f.Kind() == reflect.String && !slices.Contains(free, k) || path == "tracing" ||
			path == "discovery" {
			continue
		}
		switch {
		case f.Kind() == reflect.Struct && f.Type() != reflect.TypeFor[Alpha]():
			drawFields(t, f, field)
		case f.Type() == reflect.TypeFor[[]Replica]():
			for j := range f.Len() {
				drawFields(t, f.Index(j), field)
			}
		case rapid.IntRange(0, 99).Draw(t, field+"?") > 97:
			drawLeaf(t, f, field)
		}
	}
}

func drawLeaf(t *rapid.T, f reflect.Value, field string) {
	switch f.Interface().(type) {
	case time.Duration:
		f.SetInt(rapid.Int64Range(0, int64(100*time.Hour)).Draw(t, field))
		return
	case Alpha:
		f.Set(reflect.ValueOf(Alpha{Value: rapid.Float64Min(0).Draw(t, field)}))
		return
	}
	switch f.Kind() {
	case reflect.String:
		f.SetString(rapid.OneOf(rapid.String(), rapid.SampledFrom(awkward)).Draw(t, field))
	case reflect.Bool:
		f.SetBool(rapid.Bool().Draw(t, field))
	case reflect.Int, reflect.Int64:
		f.SetInt(rapid.OneOf(rapid.Int64Range(1, 9), rapid.Int64Range(1<<20, 1<<22)).Draw(t, field))
	case reflect.Float64:
		f.SetFloat(rapid.Float64Range(0, 1).Draw(t, field))
	}
}

// awkward texts have another meaning if YAML has them without quotes.
var awkward = []string{
	"", "~", "null", "true", "yes", "on", "0x10", "1_000", "1e3", ".inf", "2026-01-01", "- a", "a: b", "#x",
	" x", "x ", "'", `"`, "&a", "*a", "!!str", "a\nb", "\t", "{}", "[", "|", ">", "%", "@", "`", "<<", "1:30",
	"0o7", "é", "\u2028",
}
