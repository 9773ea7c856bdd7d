package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/lab/replay"
)

// sample is a trace of prompts of 500 tokens, one a second. The answers have output tokens.
func sample(t *testing.T, prompts, output int) string {
	t.Helper()
	var text strings.Builder
	text.WriteString(`{"tandem_trace":1}` + "\n")
	for i := range prompts {
		fmt.Fprintf(&text, `{"t":%d,"in":500,"out":%d}`+"\n", i, output)
	}
	file := filepath.Join(t.TempDir(), "sample.jsonl")
	if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestReplayCommand(t *testing.T) {
	file := sample(t, 50, 20)
	var out, log bytes.Buffer
	args := []string{
		"replay", "--trace", file, "--cluster", "1P1D", "--profile", "8b", "--policy", "tandem,random", "--json",
	}
	if code := run(t.Context(), args, &out, &log); code != 0 {
		t.Fatalf("code %d: %s", code, log.String())
	}
	var got []replay.Outcome
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || len(got) != 2 || got[0].Policy != "tandem" ||
		got[1].Requests != 50 {
		t.Errorf("%v: %+v", err, got)
	}
}

func TestReplayMistakes(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"replay", "--trace", none}, 1, "--trace names the file"},
		{[]string{"replay", "validate", "--traces", none}, 1, "--traces names the folder"},
		{[]string{"replay", "--sort"}, 2, "there is no flag --sort"},
		{[]string{"replay", "--stress", "cold"}, 2, "want hot, flood or surge"},
	} {
		var out, log bytes.Buffer
		if code := run(t.Context(), tt.args, &out, &log); code != tt.code ||
			!strings.Contains(log.String(), tt.want) {
			t.Errorf("%q: code %d, %s", tt.args, code, log.String())
		}
	}
}

// A mistyped subcommand plays nothing, at any position. The error proposes the nearest subcommand, or
// names all.
func TestReplaySubcommandMistyped(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"chec", `there is no command "chec"; did you mean check?`},
		{"--quiet chec", `there is no command "chec"; did you mean check?`},
		{
			"sideways",
			`there is no command "sideways"; ` +
				`there are ablate, capture, check, classes, grid, kinds, precise, repeats, tiers, validate`,
		},
		{"--scale 2 check", "there is no flag --scale"}, // a flag of check
	} {
		var out, log bytes.Buffer
		args := append([]string{"replay"}, strings.Fields(tt.args)...)
		if code := run(t.Context(), args, &out, &log); code != 2 || out.Len() > 0 ||
			!strings.Contains(log.String(), tt.want) {
			t.Errorf("%q: code %d, %s%s", tt.args, code, out.String(), log.String())
		}
	}
}

// Together with the table, a page is drawn with every policy at every load.
func TestReplayDraws(t *testing.T) {
	file, page := sample(t, 50, 20), filepath.Join(t.TempDir(), "new", "page.html")
	var out, log bytes.Buffer
	args := []string{
		"replay", "--trace", file, "--cluster", "1P1D", "--profile", "8b", "--policy", "tandem,random",
		"--html", page,
		"--loads", "0.5,2",
	}
	if code := run(t.Context(), args, &out, &log); code != 0 {
		t.Fatalf("code %d: %s", code, log.String())
	}
	html, err := os.ReadFile(page)
	if err != nil || !bytes.Contains(html, []byte("random")) ||
		!bytes.Contains(html, []byte("Goodput over load")) {
		t.Errorf("%v: %.200s", err, html)
	}
	if n := strings.Count(log.String(), "of the load"); n != 6 {
		t.Errorf("%d plays, want 2 policies at 3 loads", n)
	}
	if code := run(t.Context(), append(args, "--loads", "much"), &out, &log); code == 0 ||
		!strings.Contains(log.String(), "write for example 0.5,1,1.5") {
		t.Errorf("an invalid load: code %d, %s", code, log.String())
	}
}

// A page with an unknown policy plays nothing.
func TestReplayDrawsNothingForAnUnknownPolicy(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.html")
	var out, log bytes.Buffer
	args := []string{
		"replay", "--trace", sample(t, 5, 2), "--cluster", "1P1D", "--policy", "tandem,nosuch", "--html", page,
	}
	if code := run(t.Context(), args, &out, &log); code != 1 ||
		!strings.Contains(log.String(), `no policy "nosuch"`) || strings.Contains(log.String(), "of the load") {
		t.Errorf("code %d, %s", code, log.String())
	}
	if strings.Contains(out.String(), "tandem") {
		t.Errorf("a policy was played: %s", out.String())
	}
}

// In a fresh clone replay, its page and tune have a trace that they can play.
func TestShippedTraces(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	page := filepath.Join(t.TempDir(), "page.html")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"replay", "--for", "5s", "--cluster", "2P2D", "--quiet", "--policy", "tandem"}, "tandem"},
		{
			[]string{"replay", "--for", "5s", "--cluster", "2P2D", "--quiet", "--policy", "tandem", "--html", page},
			"tandem",
		},
		{[]string{
			"replay", "--trace", "examples/traces/weka_agentic_dev.jsonl.gz", "--for", "20s", "--cluster", "2P2D",
			"--quiet", "--policy", "tandem",
		}, "tandem"},
		{[]string{"tune", "--for", "5s", "--cluster", "1P1D", "--seeds", "1", "--quiet"}, "better"},
	} {
		var out, log bytes.Buffer
		if code := run(t.Context(), tt.args, &out, &log); code != 0 || !strings.Contains(out.String(), tt.want) {
			t.Errorf("%q: code %d, %s%s", tt.args, code, out.String(), log.String())
		}
	}
	if html, err := os.ReadFile(page); err != nil || !bytes.Contains(html, []byte("</html>")) {
		t.Errorf("the page: %v, %d bytes", err, len(html))
	}
}
