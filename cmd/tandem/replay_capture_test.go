package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/lab/trace"
)

// router streams a capture: the first line, the other lines, and the end line if there is one.
func router(t *testing.T, lines ...string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/debug/capture" || r.URL.Query().Get("for") != "1m0s" {
			http.Error(w, "what is "+r.URL.String(), http.StatusNotFound)
			return
		}
		fmt.Fprintln(w, strings.Join(lines, "\n"))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestCaptureCommand(t *testing.T) {
	const first = `{"tandem_trace":1,"block_size":16}`
	late := `{"t":2.5,"in":40,"out":3,"blocks":[7,8]}`
	early := `{"t":0.5,"m":"m","s":"a","in":20,"out":9,"blocks":[7]}`
	for _, c := range []struct {
		name  string
		lines []string
		says  string
		good  bool
		calls int
	}{
		{"in order of arrival", []string{first, late, early, `{"lost":0}`}, "2 requests in", true, 2},
		{"some lost", []string{first, early, `{"lost":5}`}, "5 more requests are missing", true, 1},
		{"the router ended", []string{first, late}, "too early", false, 1},
		{"another version", []string{`{"tandem_trace":9}`}, "version 1", false, 0},
		{"no router", []string{"hello"}, "admin listener", false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "out.jsonl")
			var log bytes.Buffer
			args := []string{"replay", "capture", "--admin", router(t, c.lines...), "--for", "1m", "--out", file}
			code := run(t.Context(), args, io.Discard, &log)
			if (code == 0) != c.good || !strings.Contains(log.String(), c.says) {
				t.Errorf("code %d, %q; want %q", code, log.String(), c.says)
			}
			if c.calls == 0 {
				if _, err := os.Stat(file); err == nil {
					t.Error("a file was made from an empty capture")
				}
				return
			}
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			got, err := trace.Open(f, file, trace.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if all, err := got.All(); err != nil || len(all) != c.calls {
				t.Errorf("%d requests can be read again, want %d: %v", len(all), c.calls, err)
			}
			if code = run(t.Context(), args, io.Discard, &log); code == 0 ||
				!strings.Contains(log.String(), "exists already") {
				t.Errorf("a second run: code %d, %q", code, log.String())
			}
		})
	}
}
