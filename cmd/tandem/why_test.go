//go:build linux

package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The command explains a request from the memory of the router, and from the router's file when the router
// has ended.
func TestWhyCommand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "decisions.jsonl")
	f := newFleet(t, setting{engines: fast, extra: "decisions: {file: " + file + "}\n"})
	got := f.check(newWriter(3).next(8))
	id := got.header.Get("X-Request-Id")
	ask := func(args ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), append([]string{"why"}, args...), &stdout, &stderr); code != 0 {
			t.Fatalf("%v ends with %d: %s", args, code, stderr.String())
		}
		return stdout.String()
	}
	live := ask("--admin", f.admin, "--gamma", "3", id)
	for _, want := range []string{
		"request " + id, "ok, status 200", "p", "predicted", "configuration", "with gamma 3: ",
	} {
		if !strings.Contains(live, want) {
			t.Errorf("no %q in\n%s", want, live)
		}
	}
	f.router.signal(syscall.SIGTERM)
	if code := f.router.exit(patience(5 * time.Second)); code != 0 {
		t.Fatalf("the router exits with %d", code)
	}
	if kept := ask("--file", file, "--gamma", "3", id); kept != live {
		t.Errorf("from the file:\n%s\nfrom the router:\n%s", kept, live)
	}
	var stderr bytes.Buffer
	if code := run(t.Context(), []string{"why", "--file", file, "nobody"}, &stderr, &stderr); code != 1 ||
		!strings.Contains(stderr.String(), "no record of that request") {
		t.Errorf("for an unknown request: %d, %s", code, stderr.String())
	}
	if code := run(t.Context(), []string{"why"}, &stderr, &stderr); code != 2 {
		t.Errorf("without an id: %d", code)
	}
}

// Weights that a configuration may not have are refused: with such weights all plans would cost the same.
func TestWhyRefusesWeightsThatMeanNothing(t *testing.T) {
	for _, weight := range []string{"NaN", "Inf", "-1", "many"} {
		for _, flag := range []string{"--alpha", "--beta", "--gamma", "--decode-penalty"} {
			var out bytes.Buffer
			code := run(t.Context(), []string{"why", "--file", "none", flag, weight, "id"}, &out, &out)
			want := fmt.Sprintf("%s %q: choose a number from 0 up", flag, weight)
			if code != 2 || !strings.Contains(out.String(), want) {
				t.Errorf("%s %s: code %d, %s", flag, weight, code, out.String())
			}
		}
	}
}
