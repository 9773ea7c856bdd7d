package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

// The kinds are listed, and a kind that was written to a file is played like any trace.
func TestReplayKinds(t *testing.T) {
	var out, log bytes.Buffer
	if code := run(t.Context(), []string{"replay", "kinds"}, &out, &log); code != 0 {
		t.Fatalf("code %d: %s", code, log.String())
	}
	if n := strings.Count(out.String(), "\n"); n < 20 || strings.Count(out.String(), " blind ") != n/2 {
		t.Errorf("%d kinds, half of them blind:\n%s", n, out.String())
	}
	file := filepath.Join(t.TempDir(), "x.jsonl")
	write := []string{"replay", "kinds", "--write", "extract-bursts", "--for", "1m", "--out", file}
	if code := run(t.Context(), write, &out, &log); code != 0 {
		t.Fatalf("code %d: %s", code, log.String())
	}
	common := strings.Fields("-cluster 1P1D -profile 8b -policy tandem -quiet -json -for 1m")
	var plays [2]bytes.Buffer
	for i, what := range [][]string{{"--kind", "extract-bursts"}, {"--trace", file}} {
		args := append(append([]string{"replay"}, what...), common...)
		if code := run(t.Context(), args, &plays[i], &log); code != 0 {
			t.Fatalf("%q: code %d: %s", args, code, log.String())
		}
	}
	before := func(b *bytes.Buffer) string {
		text, _, _ := strings.Cut(b.String(), `"wall_s"`)
		return text
	}
	if a, b := before(&plays[0]), before(&plays[1]); a != b || !strings.Contains(a, `"requests":`) {
		t.Errorf("the kind and its file differ:\n%s\n%s", a, b)
	}
	for want, args := range map[string][]string{
		"one of conversation": {"replay", "--kind", "x"},
		"(examples/traces":    {"replay", "--kind", "azure-chat", "--traces", t.TempDir()},
		"not all files ship":  {"replay", "kinds", "--write", "azure-chat", "--traces", t.TempDir()},
	} {
		log.Reset()
		if code := run(t.Context(), args, &out, &log); code == 0 ||
			!strings.Contains(log.String(), want) {
			t.Errorf("%q: code %d, %s", args, code, log.String())
		}
	}
}
