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

// Keys come from three places, with the hashes of their secrets.
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
		t.Errorf("keys are %q, want %q", got, want)
	}
}

// Each mistake in a key file is named with the file, the line and what to write, and without the text.
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
				t.Errorf("%v, want %s", err, row.want)
			}
			if !strings.HasPrefix(fmt.Sprint(err), filepath.Dir(path)+"/keys:") {
				t.Errorf("%v does not begin with the file", err)
			}
		})
	}
}

// The keys in the configuration itself are checked too.
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
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	path := filepath.Join(t.TempDir(), "tandem.yaml")
	write(t, path, "listen: :1\nkeys_file: none\n")
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "keys_file: open ") {
		t.Errorf("a missing file gives %v", err)
	}
}

// A new line in the key file takes effect without a restart. A broken line is reported, and the corrected
// file is then loaded.
func TestWatchSeesTheKeyFile(t *testing.T) {
	line := func(name, hash string) string { return `{"name": "` + name + `", "sha256": "` + hash + `"}` + "\n" }
	path, keys := keyed(t, "", line("a", hashOfABC))
	w := watch(t, path, never)
	w.quiet(t)
	write(t, keys, line("a", hashOfABC)+"{\n")
	if got := w.next(t); got.err == nil || !strings.Contains(got.err.Error(), keys+":2:1: ") {
		t.Fatalf("a broken line gives %v", got.err)
	}
	write(t, keys, line("a", hashOfABC)+line("b", hashOfEmpty))
	w.want(t, ":1")
	if c, err := Load(path); err != nil || len(c.ClientKeys()) != 2 {
		t.Fatalf("%v, %v", c, err)
	}
}

// A reload reports a change of the key file as a change.
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
		t.Errorf("changes are %q, want %q", got, want)
	}
}

// A file of 10,000 keys is read in less time than a request takes to notice. The memory that reading takes
// grows with the number of keys, and not with its square.
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
		t.Fatalf("%v, %d keys", err, len(c.ClientKeys()))
	}
	runtime.ReadMemStats(&is)
	t.Logf("10,000 keys in %v", time.Since(began))
	if n := (is.TotalAlloc - was.TotalAlloc) / 10_000; n > 16<<10 {
		t.Errorf("reading a key takes %d bytes, want at most 16 KiB", n)
	}
}

// A file that is not a key file gives a limited number of problems.
func TestAForeignFileIsNoKeyFile(t *testing.T) {
	path, _ := keyed(t, "", strings.Repeat("#no\nhush\n", 10_000))
	_, err := Load(path)
	if problems, ok := errors.AsType[Problems](err); !ok || len(problems) != mostKeyProblems {
		t.Errorf("%d problems: %.300v", len(problems), err)
	}
}

// For any content of a key file, reading ends. The keys have valid names and hashes, and reading their own
// lines gives the same keys.
func FuzzKeyFile(f *testing.F) {
	f.Add([]byte(`{"name": "a", "sha256": "` + hashOfABC + `", "tenant": "t"}` + "\n# note\n\n{}\n"))
	f.Add([]byte("\xff{\"name\":1}\x00\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, problems := parseKeys("keys", data)
		if len(problems) > mostKeyProblems+3 {
			t.Errorf("%d problems", len(problems))
		}
		for _, k := range list {
			line, err := KeyLine(k)
			again, bad := parseKeys("keys", []byte(line))
			if err != nil || len(bad) > 0 || len(again) != 1 {
				t.Fatalf("%v, %v of %+v", err, bad, k)
			}
			if k.Line = again[0].Line; !reflect.DeepEqual(k, again[0]) || !nameOfKey.MatchString(k.Name) {
				t.Errorf("%+v became %+v", k, again[0])
			}
		}
	})
}

// A key file without keys is refused where no other key stands: nobody would be let in. The file has no keys
// for a moment if a shell truncates the file before it writes.
func TestAKeyFileWithoutKeysLetsNobodyIn(t *testing.T) {
	for _, lines := range []string{"", "\n", "# none yet\n"} {
		path, _ := keyed(t, "", lines)
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "keys_file: has no key") {
			t.Errorf("%q: the error is %v, want that the file has no key", lines, err)
		}
	}
}

// A salt that could be guessed is refused, also one from a file.
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
			t.Errorf("%s: %v, want %q", row[0], err, row[1])
		}
	}
}
