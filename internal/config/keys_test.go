package config

import (
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	hashOfABC   = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	hashOfEmpty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

// keyed writes a configuration with a key file, and returns the paths of both.
func keyed(t *testing.T, more, lines string) (path, keys string) {
	t.Helper()
	dir := t.TempDir()
	path, keys = filepath.Join(dir, "tandem.yaml"), filepath.Join(dir, "keys")
	write(t, keys, lines)
	write(t, path, "listen: :1\nkeys_file: keys\n"+more)
	return path, keys
}

// Keys come from api_keys, keys and keys_file. The test compares the hashes of their secrets.
func TestClientKeysComeFromThreePlaces(t *testing.T) {
	path, _ := keyed(t, "api_keys: [{value: abc}]\nkeys: [{name: a, secret: {value: abcd}, tenant: t}]\n",
		"# by the operator\n\n"+`{"name": "b", "sha256": "`+hashOfEmpty+`"}`+"\n")
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, k := range c.ClientKeys() {
		sum := k.Hash()
		got = append(got, fmt.Sprintf("%s %s %s", k.Name, k.Tenant, hex.EncodeToString(sum[:4])))
	}
	want := []string{"key-1 sha256 " + hashOfABC + " ba7816bf", "a t 88d4266f", "b  e3b0c442"}
	if !slices.Equal(got, want) {
		t.Errorf("got keys %q, want %q", got, want)
	}
}

// The error of each mistake in a key file names the file and the line, and says what to write. It never
// quotes the line.
func TestProblemsOfKeyFiles(t *testing.T) {
	good := `{"name": "b", "sha256": "` + hashOfEmpty + `"}`
	for name, row := range map[string]struct{ lines, want string }{
		"no JSON":      {good + "\nhush-hush\n", "keys:2:1: the line is not one JSON object; write"},
		"cut off":      {`{"name": "hush`, "keys:1:1: the line is not one JSON object; write"},
		"two objects":  {good + " " + good, "keys:1:1: the line has more than one JSON object; write"},
		"secret":       {`{"name": "a", "secret": "hush"}`, "keys:1:1: secret: is not taken from a key file"},
		"other field":  {`{"name": "a", "hush": 1}`, "keys:1:1: the line has a field that is not known; use only"},
		"other type":   {`{"name": 77}`, "keys:1:1: name: has a value of another type; put"},
		"no name":      {`{"sha256": "` + hashOfABC + `"}`, "keys:1:1: name: is no name of a key; write 1 to 64"},
		"bad name":     {`{"name": "hush hush", "sha256": "` + hashOfABC + `"}`, ":1:1: name: is no name"},
		"bad tenant":   {`{"name": "a", "sha256": "` + hashOfABC + `", "tenant": "hu\nsh"}`, "1:1: tenant: is no"},
		"no hash":      {`{"name": "a"}`, "keys:1:1: sha256: is empty; write the 64 hex digits"},
		"short hash":   {`{"name": "a", "sha256": "ba78"}`, "keys:1:1: sha256: is not a SHA-256 hash; write"},
		"secret as it": {`{"name": "a", "sha256": "` + strings.Repeat("hush", 16) + `"}`, "is not a SHA-256 hash"},
		"same name": {
			good + "\n" + strings.Replace(good, hashOfEmpty, hashOfABC, 1),
			"keys:2:1: is the second key with the name b, after ",
		},
		"same secret": {
			good + "\n" + strings.Replace(good, `"b"`, `"c"`, 1),
			"keys:2:1: is the second key with the same secret, after ",
		},
		"name of the configuration": {
			strings.Replace(good, `"b"`, `"a"`, 1),
			"keys:1:1: is the second key with the name a, after keys[0]; rename",
		},
	} {
		t.Run(name, func(t *testing.T) {
			path, _ := keyed(t, "keys: [{name: a, sha256: '"+strings.Repeat("0", 64)+"'}]\n", row.lines)
			_, err := Load(path)
			if err == nil || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "hush") {
				t.Errorf("got %v, want %s and no text of the file", err, row.want)
			}
			if !strings.HasPrefix(fmt.Sprint(err), filepath.Dir(path)+"/keys:") {
				t.Errorf("got %v, want the name of the file first", err)
			}
		})
	}
}

// Keys in the configuration itself are validated too.
func TestProblemsOfKeys(t *testing.T) {
	for _, row := range [][2]string{
		{
			"keys: [{name: a}]",
			"tandem.yaml:3:9: keys[0].secret: is empty; write {file",
		},
		{
			"keys: [{name: .a}]",
			"keys[0].name: is no name of a key; write 1 to 64",
		},
		{
			"keys: [{name: a, secret: {value: x}, sha256: " + hashOfABC + "}]",
			"has a secret and its hash; keep one",
		},
		{
			"keys: [{name: a, secret: {value: x}}, {name: b, secret: {value: x}}]",
			"keys[1]: is the second key with the same",
		},
		{
			"api_keys: [{value: x}]\nkeys: [{name: key-1, secret: {value: y}}]",
			"name key-1, after api_keys[0]",
		},
		{
			"keys: [{name: a, secret: {value: " + strings.Repeat("x", LongestSecret+1) + "}}]",
			"is longer than 512 bytes",
		},
		{
			"api_keys: [{value: abc}]\nkeys: [{name: a, sha256: " + hashOfABC + "}]",
			"after api_keys[0]; remove one",
		},
		{
			"keys: [{name: a, sha256: x}]",
			"keys[0].sha256: is not a SHA-256 hash",
		},
		{
			"keys: [{name: a, secret: {env: NOT_SET_ANYWHERE}}]",
			"NOT_SET_ANYWHERE is not set",
		},
		{
			"keys: [{name: a, secret: {file: none}, tenant: 'a b'}]",
			"keys[0].tenant: is no name of a tenant",
		},
		{
			"keys: [{name: a, secret: {value: x}, speed: x}, {name: a, secret: {value: y}}]\n",
			"speed: is not a field",
		},
	} {
		text, want := row[0], row[1]
		path, _ := keyed(t, text+"\n", "")
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
	path := filepath.Join(t.TempDir(), "tandem.yaml")
	write(t, path, "listen: :1\nkeys_file: none\n")
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "keys_file: open ") {
		t.Errorf("missing key file: got %v, want an error of opening", err)
	}
}

// A new line in the key file takes effect without a restart. The watcher reports a broken line, and loads the
// corrected file.
func TestWatchSeesTheKeyFile(t *testing.T) {
	line := func(name, hash string) string { return `{"name": "` + name + `", "sha256": "` + hash + `"}` + "\n" }
	path, keys := keyed(t, "", line("a", hashOfABC))
	w := watch(t, path, never)
	w.quiet(t)
	write(t, keys, line("a", hashOfABC)+"{\n")
	if got := w.next(t); got.err == nil || !strings.Contains(got.err.Error(), keys+":2:1: ") {
		t.Fatalf("broken line: got %v, want an error for line 2", got.err)
	}
	write(t, keys, line("a", hashOfABC)+line("b", hashOfEmpty))
	w.want(t, ":1")
	if c, err := Load(path); err != nil || len(c.ClientKeys()) != 2 {
		t.Fatalf("got %v, %v; want 2 keys", c, err)
	}
}

// A reload reports each change of the key file.
func TestDiffSeesOtherKeys(t *testing.T) {
	a, b := Default(), Default()
	a.Keys = []Key{{Name: "a", SHA256: hashOfABC}, {Name: "b", SHA256: hashOfEmpty}}
	b.Keys = []Key{{Name: "a", SHA256: hashOfEmpty}, {Name: "c", Secret: Secret{Env: "C"}}}
	a.FileKeys, b.FileKeys = []Key{{Name: "x"}}, []Key{{Name: "y"}}
	var got []string
	for _, c := range Diff(a, b) {
		got = append(got, c.String())
	}
	want := []string{
		"keys[a].sha256: " + hashOfABC + " -> " + hashOfEmpty + " (applies at once)",
		"keys[b]: - sha256 (applies at once)", "keys[c]: + env C (applies at once)",
		"keys_file: 1 keys -> 1 keys, not the same (applies at once)",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got changes %q, want %q", got, want)
	}
}

// Loading 10,000 keys takes memory in proportion to the number of keys, not to the square of this number.
func TestReadTenThousandKeys(t *testing.T) {
	var lines strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&lines, `{"name": "team-%d", "sha256": "%064x", "tenant": "t"}`+"\n", i, i)
	}
	path, _ := keyed(t, "", lines.String())
	var was, is runtime.MemStats
	runtime.ReadMemStats(&was)
	began := time.Now()
	c, err := Load(path)
	if err != nil || len(c.ClientKeys()) != 10_000 {
		t.Fatalf("got %d keys, %v; want 10,000", len(c.ClientKeys()), err)
	}
	runtime.ReadMemStats(&is)
	t.Logf("10,000 keys in %v", time.Since(began))
	if n := (is.TotalAlloc - was.TotalAlloc) / 10_000; n > 16<<10 {
		t.Errorf("got %d bytes for each key, want at most 16 KiB", n)
	}
}

// The number of problems is limited, even for a large file that is no key file.
func TestAForeignFileIsNoKeyFile(t *testing.T) {
	path, _ := keyed(t, "", strings.Repeat("#no\nhush\n", 10_000))
	_, err := Load(path)
	if problems, ok := errors.AsType[Problems](err); !ok || len(problems) != mostKeyProblems {
		t.Errorf("got %d problems, want %d: %.300v", len(problems), mostKeyProblems, err)
	}
}

// FuzzKeyFile reads any bytes as a key file. Every accepted key has a valid name and hash, and its own line
// gives the same key again.
func FuzzKeyFile(f *testing.F) {
	f.Add([]byte(`{"name": "a", "sha256": "` + hashOfABC + `", "tenant": "t"}` + "\n# note\n\n{}\n"))
	f.Add([]byte("\xff{\"name\":1}\x00\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, problems := parseKeys("keys", data)
		if len(problems) > mostKeyProblems+3 {
			t.Errorf("got %d problems, want at most %d", len(problems), mostKeyProblems+3)
		}
		for _, k := range list {
			line, err := KeyLine(k)
			again, bad := parseKeys("keys", []byte(line))
			if err != nil || len(bad) > 0 || len(again) != 1 {
				t.Fatalf("got %v and %v for the line of %+v, want the key", err, bad, k)
			}
			if k.Line = again[0].Line; !reflect.DeepEqual(k, again[0]) || !nameOfKey.MatchString(k.Name) {
				t.Errorf("got %+v from the line of a key, want %+v", again[0], k)
			}
		}
	})
}

// A key file without keys is refused if it is the only place of keys, because no client could send a request.
// The file is empty for a moment if a shell truncates it before writing.
func TestAKeyFileWithoutKeysLetsNobodyIn(t *testing.T) {
	for _, lines := range []string{"", "\n", "# none yet\n"} {
		path, _ := keyed(t, "", lines)
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "keys_file: has no key") {
			t.Errorf("%q: got %v, want an error that the file has no key", lines, err)
		}
	}
}

// A salt that could be guessed is refused, from the configuration or from a file.
func TestAShortSaltIsRefused(t *testing.T) {
	keys := "keys: [{name: a, secret: {value: x}}]\n"
	for _, row := range [][2]string{
		{"isolation: {salt: {value: " + strings.Repeat("s", 15) + "}}\n", ".salt: has 15 bytes; give at least 16"},
		{"isolation: {salt: {file: short}}\n", ".salt: has 6 bytes; give at least 16"},
		{"isolation: {salt: {value: " + strings.Repeat("s", 16) + "}}\n", ""},
	} {
		path := filepath.Join(t.TempDir(), "tandem.yaml")
		write(t, filepath.Join(filepath.Dir(path), "short"), "pepper\n")
		write(t, path, "listen: :1\n"+keys+row[0])
		_, err := Load(path)
		if got := fmt.Sprint(err); row[1] == "" && err != nil || !strings.Contains(got, row[1]) {
			t.Errorf("%s: got %v, want %q", row[0], err, row[1])
		}
	}
}
