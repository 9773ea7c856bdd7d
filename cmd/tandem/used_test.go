package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The lines of several files add up by key and model; a line that is none is named.
func TestUsageAddsUp(t *testing.T) {
	line := func(to, key string) string {
		return `{"from":"2026-11-28T01:00:00Z","to":"` + to + `","key":"` + key + `","model":"m","requests":2,` +
			`"prompt_tokens":30,"cached_tokens":10,"generated_tokens":5}` + "\n"
	}
	dir := t.TempDir()
	var files []string
	for name, text := range map[string]string{
		"a": line("2026-11-28T02:00:00Z", "team-a") + line("2999-11-28T03:00:00Z", "team-b"),
		"b": line("2026-11-28T02:00:00Z", "team-a"),
	} {
		files = append(files, filepath.Join(dir, name))
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	shown := func(args ...string) (string, int) {
		var out bytes.Buffer
		code := run(t.Context(), append([]string{"usage"}, args...), &out, &out)
		return strings.Join(strings.Fields(out.String()), " "), code
	}
	const head = "KEY MODEL PROMPTS PROMPT TOKENS CACHED GENERATED"
	if got, code := shown(files...); code != 0 || got != head+" team-a m 4 60 20 10 team-b m 2 30 10 5" {
		t.Errorf("%d %s", code, got)
	}
	if got, code := shown(append(files, "--since", "1h")...); code != 0 || got != head+" team-b m 2 30 10 5" {
		t.Errorf("%d %s", code, got)
	}
	if err := os.WriteFile(files[0], []byte("{}\nno\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, code := shown(files[0])
	if code != exitFailed || !strings.Contains(got, ":2 is no line of usage; remove it") {
		t.Errorf("%d %s", code, got)
	}
	if _, code := shown(); code != exitUsage {
		t.Errorf("%d without a file", code)
	}
}
