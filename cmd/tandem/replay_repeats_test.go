package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The repeats of traces are a table with one line for each file.
func TestReplayRepeats(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.jsonl")
	const line = `{"t":1,"in":32,"out":5,"blocks":[1,2]}` + "\n"
	text := `{"tandem_trace":1,"block_size":16}` + "\n" + strings.Repeat(line, 4)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, log bytes.Buffer
	if code := run(t.Context(), []string{"replay", "repeats", file, file}, &out, &log); code != 0 {
		t.Fatalf("code %d: %s", code, log.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if want := "x.jsonl  4  4  75.00 %  75.00 %  75.00 %  75.00 %  75.00 %  75.00 %"; len(lines) != 3 ||
		strings.Join(strings.Fields(lines[1]), " ") != strings.Join(strings.Fields(want), " ") {
		t.Errorf("%s", out.String())
	}
	log.Reset()
	if code := run(t.Context(), []string{"replay", "repeats", "no-such-file"}, &out, &log); code == 0 ||
		!strings.Contains(log.String(), "no trace") {
		t.Errorf("code %d, %s", code, log.String())
	}
}

// The traces that ship have hardly any repeats.
func TestShippedTracesHardlyRepeat(t *testing.T) {
	t.Chdir("../..")
	var out, log bytes.Buffer
	if code := run(t.Context(), []string{"replay", "repeats"}, &out, &log); code != 0 {
		t.Fatalf("code %d: %s", code, log.String())
	}
	for trace, hits := range map[string]string{
		"mooncake_conversation": " 0.16 %", "weka_agentic_dev": " 0.00 %",
	} {
		found := false
		for line := range strings.Lines(out.String()) {
			found = found || strings.HasPrefix(line, trace) && strings.Contains(line, hits)
		}
		if !found {
			t.Errorf("%s has no%s hits:\n%s", trace, hits, out.String())
		}
	}
}
