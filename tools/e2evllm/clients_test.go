package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// The act fails if a client fails, writes no report, or does not end properly.
func TestClientsAreJudged(t *testing.T) {
	ok := checked{Check: "a", OK: true}
	for _, tt := range []struct {
		name string
		said []checked
		err  error
		held bool
	}{
		{"all well", []checked{ok, ok}, nil, true},
		{"one is not", []checked{ok, {Check: "b", Why: "w"}}, nil, false},
		{"only what we check ourselves", []checked{ok}, nil, false},
		{"it ended badly", []checked{ok, ok}, errors.New("exit status 1"), false},
	} {
		if err := judgeClient("c", tt.said, tt.err); (err == nil) != tt.held {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestChecksAreRead(t *testing.T) {
	got := readChecks("noise\n{\"check\": \"a\", \"ok\": true, \"why\": \"\"}\n{\"check\": broken\n" +
		"{\"check\": \"b\", \"ok\": false, \"why\": \"w\"}\n")
	if len(got) != 2 || !got[0].OK || got[1].OK || got[1].Why != "w" {
		t.Errorf("%+v", got)
	}
}

func TestReports(t *testing.T) {
	file := filepath.Join(t.TempDir(), "r.json")
	var is struct{ N int }
	holds := func() bool { return is.N == 3 }
	for text, want := range map[string]bool{`{"n":3}`: true, `{"n":2}`: false, `{`: false} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if ok, why := readReport(file, &is, holds); ok != want || ok != (why == "") {
			t.Errorf("%s: %t %s", text, ok, why)
		}
	}
	if ok, why := readReport(file+"x", &is, holds); ok || why == "" {
		t.Error("a missing report passes")
	}
}
