package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestDefaultsAreValid(t *testing.T) {
	if err := Default().Validate(); err != nil {
		t.Error(err)
	}
	if err := FromFlags(":0", []string{"a:1", "https://b/"}, []string{"c:2"}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestEmptyFileIsTheDefault(t *testing.T) {
	for _, text := range []string{
		"", "# nothing\n", "---\n", "pools:\n  prefill:\nlisten:\n", "x-mine: {any: thing}\n",
	} {
		got, err := Parse("tandem.yaml", []byte(text))
		if err != nil {
			t.Errorf("%q: got %v, want no error", text, err)
			continue
		}
		want := Default()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %+v, want the defaults", text, got)
		}
	}
}

// An address needs no quotes where YAML requires none, also within braces.
func TestAddressesWithoutQuotes(t *testing.T) {
	for _, text := range []string{
		"pools: {prefill: {replicas: [http://p0:8000, http://p1:8000]}}\nrouters: {peers: [http://a:9090]}\n",
		"pools:\n  prefill: {replicas: [http://p0:8000, {name: p1, url: http://p1:8000}]}\nrouters: {peers: " +
			"[http://a:9090]}\n",
		"pools:\n  prefill:\n    replicas: [http://p0:8000, http://p1:8000]\nrouters:\n  peers: [http://a:9090]\n",
		"pools:\n  prefill:\n    replicas:\n    - http://p0:8000\n    - http://p1:8000\nrouters:\n  peers:\n  - " +
			"http://a:9090\n",
	} {
		c, err := Parse("tandem.yaml", []byte(text))
		if err != nil {
			t.Errorf("%sgot %v, want no error", text, err)
			continue
		}
		r := c.Pools.Prefill.Replicas
		if len(r) != 2 || r[0].URL != "http://p0:8000" || r[1].URL != "http://p1:8000" ||
			len(c.Routers.Peers) != 1 || c.Routers.Peers[0] != "http://a:9090" {
			t.Errorf("%sgot replicas %+v and peers %v, want p0, p1 and a", text, r, c.Routers.Peers)
		}
	}
	// With a space after the colon, the address is the name of a field, as in any YAML.
	_, err := Parse("tandem.yaml", []byte("pools: {prefill: {replicas: [http://p0: 8000]}}\n"))
	if err == nil || !strings.Contains(err.Error(), "pools.prefill.replicas[0].http://p0: is not a field") {
		t.Errorf("got %v, want an error that the address is not a field", err)
	}
}

// A port of pods is a number or a name. The number needs no quotes.
func TestPortsOfPodsWithoutQuotes(t *testing.T) {
	for text, want := range map[string]string{"8200": "8200", `"8200"`: "8200", "http": "http"} {
		file := "discovery: {kubernetes: {preset: llm-d, decode: {port: " + text + "}}}\n"
		c, err := Parse("tandem.yaml", []byte(file))
		if err != nil {
			t.Errorf("%s: got %v, want no error", text, err)
			continue
		}
		if got := c.Discovery.Kubernetes.Decode.Port; string(got) != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	_, err := Parse("tandem.yaml", []byte("discovery: {kubernetes: {preset: llm-d, decode: {port: true}}}\n"))
	if err == nil || !strings.Contains(err.Error(), "decode.port") {
		t.Errorf("true: got %v, want an error for the port", err)
	}
}

func TestQueueFollowsInFlight(t *testing.T) {
	for text, want := range map[string]int{
		"limits: {}": 1024, "limits: {in_flight: 2}": 2, "limits: {in_flight: 5000}": 1024,
		"limits: {in_flight: 20, queue: 3}": 3,
	} {
		if c, err := Parse("tandem.yaml", []byte(text)); err != nil || c.Limits.Queue != want {
			t.Errorf("%s: got %+v, %v; want a queue of %d", text, c, err, want)
		}
	}
}

func TestFull(t *testing.T) {
	c := parseFile(t, "testdata/full.yaml")
	if got := c.Pools.Prefill.Replicas[1]; got.URL != "https://p1:8000" ||
		got.Place != (Place{Rack: "a", Zone: "z1"}) || got.Events.Topic != "kv-events" {
		t.Errorf("got replica p1 %+v, want its URL, place and topic", got)
	}
	if got, want := c.Pools.Decode.Replicas[0].Place, (Place{Host: "h7", Rack: "a", Zone: "z1"}); got != want {
		t.Errorf("got place %+v of d0, want %+v", got, want)
	}
	if got, want := c.Scoring.Alpha, (Alpha{Value: 1.5}); got != want {
		t.Errorf("got alpha %v, want %v", got, want)
	}
	if got, want := c.Scoring.Links.Other, Bytes(1_250_000_000); got != want {
		t.Errorf("got links.other %d, want %d", got, want)
	}
	if c.Timeouts.Queue != 10*time.Second || c.Timeouts.Unready != 5*time.Second || c.Timeouts.Drain != 0 {
		t.Errorf("got timeouts %+v, want queue 10s, unready 5s, drain 0", c.Timeouts)
	}
}

// The full file sets every field. So this test fails if the decoder cannot read a field.
func TestFullNamesEveryField(t *testing.T) {
	data, err := os.ReadFile("testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := parse("full.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for path := range doc.at {
		seen[general(path)] = true
	}
	for _, f := range fields() {
		if !seen[f.path] {
			t.Errorf("testdata/full.yaml does not set %s", f.path)
		}
	}
}

func TestProblems(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("got files %v, %v; want some", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, err = Parse(filepath.Base(file), data)
			if err == nil {
				t.Fatal("got no error, want one")
			}
			if strings.Contains(err.Error(), "hush") {
				t.Error("the error shows a secret, want none")
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".want", err.Error()+"\n")
		})
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestAliasesDoNotExplode(t *testing.T) {
	var text strings.Builder
	text.WriteString("x-0: &a0 [\"http://p\"]\n")
	for i := range 9 {
		line := strings.Repeat("*a"+string(rune('0'+i))+", ", 9)
		text.WriteString(
			"x-" + string(rune('1'+i)) + ": &a" + string(rune('1'+i)) + " [" + strings.TrimSuffix(line, ", ") + "]\n",
		)
	}
	text.WriteString("<<: [*a9]\npools: {prefill: {replicas: *a9}}\n")
	if _, err := Parse("bomb.yaml", []byte(text.String())); err == nil {
		t.Error("got no error, want one")
	}
}

func TestYAMLComesBack(t *testing.T) {
	c := parseFile(t, "testdata/full.yaml")
	withoutValues(c)
	text, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("testdata/full.yaml", text)
	if err != nil {
		t.Fatalf("got %v from reading, want no error, for\n%s", err, text)
	}
	if !reflect.DeepEqual(c, again) {
		t.Errorf("got %+v, want %+v", again, c)
	}
}

// FuzzParse reads any bytes as a configuration. Reading never panics, and an accepted configuration is the
// same after writing and reading.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/*.yaml", "testdata/bad/*.yaml"} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Add([]byte("<<: {listen: ':1'}\nadmin: {listen: \"off\"}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("f.yaml", data)
		if err != nil {
			if ps, ok := errors.AsType[Problems](err); !ok || len(ps) == 0 {
				t.Fatalf("got %T %v, want Problems", err, err)
			}
			return
		}
		withoutValues(c)
		text, err := c.YAML()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse("f.yaml", text)
		if err != nil {
			t.Fatalf("got %v from reading, want no error, for\n%s", err, text)
		}
		if !reflect.DeepEqual(c, again) {
			t.Errorf("got changes %v, want none", Diff(c, again))
		}
	})
}

// withoutValues replaces secrets, because the written text lacks them.
func withoutValues(c *Config) {
	hide := func(s *Secret) {
		if s.Value != "" {
			*s = Secret{Env: "HIDDEN"}
		}
	}
	for i := range c.APIKeys {
		hide(&c.APIKeys[i])
	}
	hide(&c.Pools.Prefill.APIKey)
	hide(&c.Pools.Decode.APIKey)
}

func parseFile(t *testing.T, name string) *Config {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse(name, data)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// fieldInfo is a leaf of the configuration, as the structs define it.
type fieldInfo struct {
	path string // without indices, and with POOL instead of the name of a pool
	typ  reflect.Type
	def  reflect.Value // the default value; invalid within lists
}

// fields lists every leaf, by the yaml tags of the structs.
func fields() []fieldInfo {
	var all []fieldInfo
	var walk func(path string, t reflect.Type, def reflect.Value)
	walk = func(path string, t reflect.Type, def reflect.Value) {
		switch {
		case t == reflect.TypeFor[Alpha](), t == reflect.TypeFor[Secret](),
			t == reflect.TypeFor[[]Replica]() && strings.HasPrefix(path, "discovery."), // like the replicas of a pool
			t.Kind() != reflect.Struct && t.Kind() != reflect.Slice:
			all = append(all, fieldInfo{general(path), t, def})
		case t.Kind() == reflect.Slice:
			walk(path, t.Elem(), reflect.Value{})
		default:
			for k, f := range fieldsOf(t) {
				var d reflect.Value
				if def.IsValid() {
					d = def.FieldByIndex(f.Index)
				}
				walk(join(path, k), f.Type, d)
			}
		}
	}
	walk("", reflect.TypeFor[Config](), reflect.ValueOf(*Default()))
	seen := map[string]bool{}
	return slices.DeleteFunc(all, func(f fieldInfo) bool {
		again := seen[f.path]
		seen[f.path] = true
		return again
	})
}

// general returns a path as the reference writes it: without indices, and with POOL instead of a pool's name.
func general(path string) string {
	var b strings.Builder
	skip := false
	for _, r := range path {
		switch {
		case r == '[':
			skip = true
		case r == ']':
			skip = false
		case !skip:
			b.WriteRune(r)
		}
	}
	return strings.NewReplacer("pools.prefill", "pools.POOL", "pools.decode", "pools.POOL",
		"dns.prefill", "dns.POOL", "dns.decode", "dns.POOL",
		"kubernetes.prefill", "kubernetes.POOL", "kubernetes.decode", "kubernetes.POOL").Replace(b.String())
}

// The structs and the goccy tags agree: the encoder writes exactly the keys that the decoder reads.
func TestKeysAreYAMLTags(t *testing.T) {
	text, err := parseFile(t, "testdata/full.yaml").YAML()
	if err != nil {
		t.Fatal(err)
	}
	var top yaml.MapSlice
	if err := yaml.Unmarshal(text, &top); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, item := range top {
		got = append(got, item.Key.(string))
	}
	if want := keysOf(reflect.TypeFor[Config]()); !slices.Equal(got, want) {
		t.Errorf("got written keys %v, want %v", got, want)
	}
}
