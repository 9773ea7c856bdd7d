package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// check runs the subcommand in a folder with these files.
func check(t *testing.T, files map[string]string, args ...string) (stdout string, err error) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range files {
		if err := os.WriteFile(filepath.Clean(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out, complaints bytes.Buffer
	if code := run(t.Context(), append([]string{"check"}, args...), &out, &complaints); code != 0 {
		err = fmt.Errorf("exit code %d: %s", code, complaints.String())
	}
	return out.String(), err
}

func TestCheckOfAGoodFile(t *testing.T) {
	out, err := check(t, map[string]string{"a.yaml": `
pools: {prefill: {replicas: ["http://p0:8000"]}, decode: {replicas: [{name: d0, url: "http://d0:8000"}]}}
experimental: {scoring: {units: raw}, policy: prefix-hash}
`}, "a.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"a.yaml: ok\n", "1: p0:8000 (index events, 256MiB)", "1: d0 (index events, 256MiB)",
		"policy prefix-hash, scoring.units raw\n", "nixl, lease 30s, margin 15s", "alpha auto",
		"open to everybody",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(out, "note") {
		t.Errorf("a note in\n%s", out)
	}
}

// A pool without replicas is named, together with its consequence.
func TestCheckNamesTheEmptyPool(t *testing.T) {
	const p0, d0 = `prefill: {replicas: ["http://p0:1"]}`, `decode: {replicas: ["http://d0:1"]}`
	// No process listens at the port of this DNS server.
	const unheard = `discovery: {dns: {decode: [http://d:1], prefill: [http://p:1], servers: ["[::]:1"]}}`
	for text, want := range map[string]string{
		"pools: {" + p0 + "}":                   "pools.decode is empty: the router would start, and not be ready",
		"pools: {" + d0 + "}":                   "pools.prefill is empty: no request would be split",
		"pools: {" + d0 + "}\nlocal: never":     "pools.prefill is empty and local is never",
		"local: auto":                           "pools.prefill and pools.decode are empty",
		"pools: {" + p0 + ", " + d0 + "}":       "",
		unheard:                                 "dns: http://d:1: DNS server",
		"pools: {" + p0 + "}\nlocal: never\n\n": "pools.decode is empty: the router",
	} {
		out, err := check(t, map[string]string{"a.yaml": text}, "a.yaml")
		if err != nil || !strings.Contains(out, want) || strings.Contains(out, "  note") != (want != "") {
			t.Errorf("%s: %v\n%s\nwant a note with %q", text, err, out, want)
		}
	}
}

// Bandwidths and sizes are printed with a unit, even if the file has no unit.
func TestCheckPrintsUnits(t *testing.T) {
	out, err := check(t, map[string]string{"a.yaml": "scoring: {links: {other: 1, zone: 2500000}}\n"}, "a.yaml")
	if want := "host 100GB/s, rack 40GB/s, zone 2500KB/s, other 1B/s, until learned"; err != nil ||
		!strings.Contains(out, want) {
		t.Errorf("%v: no %q in\n%s", err, want, out)
	}
}

// If the name of a replica has the addresses of two machines, a note names the replica and its pool.
func TestCheckNotesANameWithSeveralAddresses(t *testing.T) {
	t.Chdir(t.TempDir())
	file := []byte("pools: {decode: {replicas: [http://vllm:8000, http://one:8000]}}\n")
	if err := os.WriteFile("a.yaml", file, 0o600); err != nil {
		t.Fatal(err)
	}
	o := checkOptions{lookUp: func(_ context.Context, _, host string) ([]netip.Addr, error) {
		all := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}
		if host == "one" {
			return all[:1], nil
		}
		return all, nil
	}}
	const note = "note  vllm has 2 addresses (10.0.0.1, 10.0.0.2), and Tandem takes it for one replica: " +
		"take it out of pools.decode.replicas, and write discovery: {dns: {decode: [\"http://vllm:8000\"]}}\n"
	var out strings.Builder
	if err := o.run(t.Context(), "a.yaml", &out); err != nil || strings.Count(out.String(), "addresses") != 1 ||
		!strings.Contains(out.String(), note) {
		t.Errorf("%v: want one note\n%s\nin\n%s", err, note, out.String())
	}
	var report checked
	o.json = true
	out.Reset()
	err := o.run(t.Context(), "a.yaml", &out)
	if err = errors.Join(err, json.Unmarshal([]byte(out.String()), &report)); err != nil ||
		len(report.Notes) != 2 || !strings.Contains(report.Notes[0], "pools.prefill is empty") ||
		!strings.Contains(note, "note  "+report.Notes[1]+"\n") {
		t.Errorf("%v: want the same notes as JSON, not\n%s", err, out.String())
	}
	o.json, o.offline = false, true
	out.Reset()
	if err := o.run(t.Context(), "a.yaml", &out); err != nil || strings.Contains(out.String(), "addresses") {
		t.Errorf("%v: --offline looked up a name:\n%s", err, out.String())
	}
}

func TestCheckOfABadFile(t *testing.T) {
	out, err := check(t, map[string]string{"a.yaml": "listne: :1\nlocal: sometimes\n"}, "a.yaml")
	if err == nil || err.Error() != "exit code 1: tandem check: a.yaml has 2 problems\n" {
		t.Errorf("error is %v", err)
	}
	if want := "a.yaml:1:1: listne: is not a field; did you mean \"listen\"?\na.yaml:2:8: " +
		"local: "; !strings.HasPrefix(out, want) {
		t.Errorf("got\n%s\nwant it to begin\n%s", out, want)
	}
}

func TestCheckAgainst(t *testing.T) {
	files := map[string]string{
		"new.yaml": "listen: :9\nlocal: never\napi_keys: [{env: NOT_SET_ANYWHERE}]\n",
		"old.yaml": "api_keys: [{env: NOT_SET_ANYWHERE}]\n",
	}
	out, err := check(t, files, "new.yaml", "--against", "old.yaml", "--offline")
	if err != nil {
		t.Fatal(err)
	}
	want := `changes against old.yaml:
  listen: :8000 -> :9 (needs restart)
  local: auto -> never (applies at once)
1 of 2 changes need a restart; a reload would apply the others
`
	if !strings.HasSuffix(out, want) {
		t.Errorf("got\n%s\nwant it to end\n%s", out, want)
	}
	if _, err := check(t, files, "new.yaml"); err == nil {
		t.Error("a secret that is missing in the environment was accepted")
	}
	if out, err := check(t, files, "--offline", "--against", "old.yaml", "old.yaml"); err != nil ||
		!strings.HasSuffix(out, "no change against old.yaml\n") {
		t.Errorf("got %v\n%s", err, out)
	}
}

// With --json the output is one object: the problems and their places, or the configuration in force and
// the changes.
func TestCheckJSON(t *testing.T) {
	files := map[string]string{
		"bad.yaml": "listne: :1\nlocal: sometimes\n",
		"new.yaml": "listen: :9\nlocal: never\napi_keys: [{value: s3cret}]\n",
		"old.yaml": "api_keys: [{value: s3cret}]\n",
	}
	for _, tt := range []struct {
		args []string
		fits bool
		want string
	}{
		{
			[]string{"bad.yaml"},
			false,
			`{"file":"bad.yaml","line":1,"column":1,"field":"listne","message":"is not a field",`,
		},
		{[]string{"none.yaml"}, false, `"problems":[{"file":"none.yaml","message":"`},
		{[]string{"new.yaml"}, true, `"ok":true,"problems":[],"notes":["pools.prefill and pools.decode are empty`},
		{[]string{
			"new.yaml", "--against", "old.yaml",
		}, true, `"changes":[{"field":"listen","old":":8000","new":":9","restart":true},` +
			`{"field":"local","old":"auto","new":"never","restart":false}],"restart":true}`},
		{[]string{"old.yaml", "--against", "old.yaml"}, true, `"changes":[],"restart":false}`},
		{[]string{"new.yaml", "--against", "bad.yaml"}, false, `"problems":[{"file":"bad.yaml"`},
	} {
		out, err := check(t, files, append([]string{"--json"}, tt.args...)...)
		if (err == nil) != tt.fits || !strings.Contains(out, tt.want) || !json.Valid([]byte(out)) {
			t.Errorf("%q: %v\n%s\nwant in it\n%s", tt.args, err, out, tt.want)
		}
		if strings.Contains(out, "s3cret") {
			t.Errorf("%q shows a secret: %s", tt.args, out)
		}
	}
}

// The file is an argument or the value of --config, as for serve.
func TestCheckTakesConfig(t *testing.T) {
	files := map[string]string{"good.yaml": `pools: {decode: {replicas: ["http://127.0.0.1:1"]}}`}
	for _, args := range [][]string{{"good.yaml"}, {"--config", "good.yaml"}, {"-config=good.yaml"}} {
		out, err := check(t, files, args...)
		if err != nil || !strings.HasPrefix(out, "good.yaml: ok\n") {
			t.Errorf("%v: %v, %s", args, err, out)
		}
	}
}

func TestCheckWrongUse(t *testing.T) {
	for _, args := range [][]string{{}, {"a", "b"}, {"--nope"}, {"--config", "a", "b"}} {
		if _, err := check(t, nil, args...); err == nil || !strings.HasPrefix(err.Error(), "exit code 2: ") {
			t.Errorf("%v gives %v", args, err)
		}
	}
	if _, err := check(t, nil, "none.yaml"); err == nil || !strings.HasPrefix(err.Error(), "exit code 1: ") {
		t.Errorf("a missing file gives %v", err)
	}
}

// The check notes files that the router cannot write, because the router refuses to start with them.
func TestCheckNotesMissingFolders(t *testing.T) {
	const text = `
pools: {decode: {replicas: ["http://127.0.0.1:1"]}, prefill: {replicas: ["http://127.0.0.1:2"]}}
state: {file: missing/state}
decisions: {file: here.jsonl}
`
	const want = "state.file: there is no folder "
	out, err := check(t, map[string]string{"a.yaml": text}, "a.yaml")
	if err != nil || !strings.Contains(out, want) || strings.Contains(out, "decisions.file: there") {
		t.Errorf("%v; want %q alone in\n%s", err, want, out)
	}
	out, err = check(t, map[string]string{"a.yaml": text}, "--offline", "a.yaml")
	if err != nil || strings.Contains(out, want) {
		t.Errorf("offline: %v\n%s", err, out)
	}
}
