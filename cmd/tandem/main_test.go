package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Help that was asked for goes to standard output, and its exit code is 0.
func TestHelp(t *testing.T) {
	for _, tt := range []struct {
		args   []string
		code   int
		stdout string
		stderr string
	}{
		{[]string{"help"}, 0, "completion", ""},
		{[]string{"-h"}, 0, "tandem help COMMAND", ""},
		{[]string{"help", "serve"}, 0, "Usage: tandem serve", ""},
		{[]string{"help", "replay", "capture"}, 0, "Usage: tandem replay capture", ""},
		{[]string{"help", "version"}, 0, "Usage: tandem version", ""},
		{[]string{"help", "srve"}, 2, "", `no command "srve"`},
		{[]string{"serve", "-h"}, 0, "", "Usage: tandem serve"},
		{[]string{"--version"}, 0, "tandem dev", ""},
		{[]string{"-version"}, 0, "tandem dev", ""},
		{[]string{"version"}, 0, "tandem dev", ""},
		{[]string{"version", "2"}, 2, "", "Usage: tandem version"},
		{[]string{"serve", "a.yaml", "extra"}, 2, "", `unexpected argument "extra"`},
		{[]string{"serve", "--config", "a.yaml", "extra"}, 2, "", `unexpected argument "extra"`},
		{[]string{"replay", "suit"}, 2, "", `replay: unexpected argument "suit"`},
		{[]string{"replay", "grid", "all"}, 2, "", `replay grid: unexpected argument "all"`},
		{[]string{"tune", "x"}, 2, "", `unexpected argument "x"`},
		{[]string{"sim", "x"}, 2, "", `unexpected argument "x"`},
		{[]string{"completion"}, 2, "", "bash|zsh|fish"},
		{[]string{"completion", "csh"}, 2, "", "bash|zsh|fish"},
	} {
		var out, log bytes.Buffer
		code := run(t.Context(), tt.args, &out, &log)
		switch {
		case code != tt.code:
			t.Errorf("%q ends with %d, want %d", tt.args, code, tt.code)
		case !strings.Contains(out.String(), tt.stdout) || (tt.stdout == "") != (out.Len() == 0):
			t.Errorf("%q writes %q, want %q", tt.args, out.String(), tt.stdout)
		case !strings.Contains(log.String(), tt.stderr) || (tt.stderr == "") != (log.Len() == 0):
			t.Errorf("%q complains %q, want %q", tt.args, log.String(), tt.stderr)
		}
	}
}

// Each script offers every command, subcommand and flag.
func TestCompletionOffersEverything(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		var out, log bytes.Buffer
		if code := run(t.Context(), []string{"completion", shell}, &out, &log); code != 0 {
			t.Fatalf("%s: code %d, %s", shell, code, log.String())
		}
		dash := map[bool]string{true: "-l ", false: "--"}[shell == "fish"]
		want := []string{
			"capture", dash + "against", dash + "token-file", dash + "prefill", dash + "speed-factor",
			dash + "objective",
		}
		for _, c := range commands() {
			want = append(want, c.name)
		}
		for _, word := range want {
			if !strings.Contains(out.String(), word) {
				t.Errorf("%s: nothing completes to %q", shell, word)
			}
		}
	}
}

// A shell that has the script completes with it.
func TestBashCompletes(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err) // make test needs it, too
	}
	var script, log bytes.Buffer
	if code := run(t.Context(), []string{"completion", "bash"}, &script, &log); code != 0 {
		t.Fatalf("code %d, %s", code, log.String())
	}
	file := filepath.Join(t.TempDir(), "tandem.bash")
	if err := os.WriteFile(file, script.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"tandem ser":               "serve",
		"tandem serve --pre":       "--prefill",
		"tandem replay cap":        "capture",
		"tandem replay -cap":       "",
		"tandem replay capture --": "--admin --for --note --out --token-file",
		"tandem check --ag":        "--against",
		"tandem completion z":      "zsh",
	} {
		ask := `source "$0"; read -ra COMP_WORDS <<<"$1"; COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _tandem; echo ` +
			`"${COMPREPLY[*]}"`
		got, err := exec.CommandContext(t.Context(), bash, "--norc", "-c", ask, file, line).CombinedOutput()
		if err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%q completes to %q, want %q: %v", line, strings.TrimSpace(string(got)), want, err)
		}
	}
}
