package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// With --help, help goes to standard output with exit code 0. A usage error goes to standard error with
// exit code 2.
func TestHelp(t *testing.T) {
	for _, tt := range []struct {
		args   string
		code   int
		stdout string
		stderr string
	}{
		{"", 2, "", "name a command, as in: tandem serve"},
		{"help", 0, "completion", ""},
		{"-h", 0, "Exit codes: 0", ""},
		{"-help", 0, "Exit codes: 0", ""},
		{"help serve", 0, "tandem serve [FILE] [flags]", ""},
		{"help replay capture", 0, "tandem replay capture [flags]", ""},
		{"replay capture --help", 0, "tandem replay capture [flags]", ""},
		{"help version", 0, "tandem version", ""},
		{"help srve", 2, "", `there is no command "srve"; did you mean serve?`},
		{"help replay chec", 2, "", `there is no command "chec"; did you mean check?`},
		{"serve -h", 0, "tandem serve [FILE] [flags]", ""},
		{"--version", 0, "tandem dev", ""},
		{"-version", 0, "tandem dev", ""},
		{"version", 0, "tandem dev", ""},
		{"version 2", 2, "", "Usage: tandem version"},
		{"srve", 2, "", `there is no command "srve"; did you mean serve?`},
		{"serve --lsten :1", 2, "", "there is no flag --lsten; did you mean --listen?"},
		{"serve -lsten :1", 2, "", "there is no flag --lsten; did you mean --listen?"},
		{"serve --zzz", 2, "", "there is no flag --zzz\n"},
		{"serve -listen", 2, "", "--listen needs a value"},
		{"serve a.yaml extra", 2, "", `unexpected argument "extra"`},
		{"serve --config a.yaml extra", 2, "", `unexpected argument "extra"`},
		{"serve --prefill p:1", 2, "", "no decode engine: add at least one --decode URL"},
		{"replay grid all", 2, "", `unexpected argument "all"`},
		{"tune x", 2, "", `unexpected argument "x"`},
		{"sim x", 2, "", `unexpected argument "x"`},
		{"completion", 2, "", "name one of bash, fish, powershell, zsh"},
		{"completion basch", 2, "", `there is no command "basch"; did you mean bash?`},
	} {
		var out, log bytes.Buffer
		code := run(t.Context(), strings.Fields(tt.args), &out, &log)
		switch {
		case code != tt.code:
			t.Errorf("%q exits with %d, want %d", tt.args, code, tt.code)
		case !strings.Contains(out.String(), tt.stdout) || (tt.stdout == "") != (out.Len() == 0):
			t.Errorf("%q writes %q, want %q", tt.args, out.String(), tt.stdout)
		case !strings.Contains(log.String(), tt.stderr) || (tt.stderr == "") != (log.Len() == 0):
			t.Errorf("%q writes the error %q, want %q", tt.args, log.String(), tt.stderr)
		}
	}
}

// A wrong value gives an error of one line, with the flag and the values that it accepts.
func TestWrongValueTakesOneLine(t *testing.T) {
	for args, want := range map[string]string{
		"replay --for abc":                   `tandem replay: --for "abc": want a duration, as 30s or 5m`,
		"replay --max-len many":              `tandem replay: --max-len "many": want a whole number`,
		"replay --seed -1":                   `tandem replay: --seed "-1": want a whole number from 0 up`,
		"replay --scale much":                `tandem replay: --scale "much": want a number`,
		"replay --scale 0":                   "tandem replay: --scale is 0: choose a number above 0",
		"sim --speed warp":                   `tandem sim: --speed "warp": want one of 8b, 70b, `,
		"sim --no-orca=perhaps":              `tandem sim: --no-orca "perhaps": want true or false`,
		"sim --fault fail,colour=red":        "tandem sim: --fault: ",
		"why --alpha NaN id":                 `tandem why: --alpha "NaN": choose a number from 0 up`,
		"serve --decode d0":                  `tandem serve: "d0" is not the address of an engine`,
		"serve --log-level loud -decode d:1": "tandem serve: log.level: ",
		"demo --prefill 0":                   "tandem demo: --prefill is 0: choose 1 or more",
		"doctor --timeout 0s http://x":       "tandem doctor: --timeout is 0s: ",
	} {
		var out, log bytes.Buffer
		code := run(t.Context(), strings.Fields(args), &out, &log)
		one := strings.Count(log.String(), "\n") == 1 && strings.HasPrefix(log.String(), want)
		if code != 2 || out.Len() > 0 || !one {
			t.Errorf("%q: code %d, %q%q, want one line that begins %q", args, code, out.String(), log.String(), want)
		}
	}
}

// Scripts that use -listen still work. Values and everything after "--" are unchanged.
func TestSingleDashes(t *testing.T) {
	for args, want := range map[string]string{
		"serve -listen :1 -admin=off x": "serve --listen :1 --admin=off x",
		"replay kinds -write x -h":      "replay kinds --write x -h",
		"sim --replay listen -v -nope":  "sim --replay listen -v -nope",
		"check -- -json":                "check -- -json",
		"advise -slo-ttft -1s":          "advise --slo-ttft -1s",
	} {
		got := strings.Join(doubleDashes(newRoot(io.Discard, io.Discard), strings.Fields(args)), " ")
		if got != want {
			t.Errorf("%q becomes %q, want %q", args, got, want)
		}
	}
}

// Every flag and command has a description. Each flag with a fixed set of words completes them.
func TestEverythingIsExplained(t *testing.T) {
	visit(newRoot(io.Discard, io.Discard), func(c *cobra.Command) {
		if c.Short == "" {
			t.Errorf("%s has no short text", c.CommandPath())
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s: --%s has no text", c.CommandPath(), f.Name)
			}
		})
	})
}

// Shells get commands, flags and values, each with its description.
func TestCompletes(t *testing.T) {
	for line, want := range map[string]string{
		"ser":                                   "serve\troute requests",
		"serve --pre":                           "--prefill\tURL of a prefill replica",
		"serve --log-level ":                    "warn",
		"serve --log-level=d":                   "debug",
		"replay cap":                            "capture\trecord the shape",
		"replay capture --tok":                  "--token-file\tfile with",
		"replay --policy ":                      "round-robin",
		"replay --policy tandem,round-robin,ll": "tandem,round-robin,llm-d\n",
		"replay --stress ":                      "flood\tno two share a prefix",
		"replay --kind ":                        "agents\ta coding agent's sessions",
		"replay grid --tables cells,":           "cells,oracles",
		"sim --speed h200":                      "h200-llama-8b-1",
		"tune --objective p99":                  "p99-tpot",
		"check ":                                "yaml",
		"check --ag":                            "--against\tthe file in force",
		"help rep":                              "replay\tplay recorded",
		"completion z":                          "zsh\t",
	} {
		var out, log bytes.Buffer
		args := append([]string{"__complete"}, strings.Split(line, " ")...)
		if code := run(t.Context(), args, &out, &log); code != 0 || !strings.Contains(out.String(), want) {
			t.Errorf("%q completes to %q, want %q: code %d, %s", line, out.String(), want, code, log.String())
		}
	}
	var out, log bytes.Buffer
	run(t.Context(), []string{"__complete", "replay", "--policy", "tandem,"}, &out, &log)
	if strings.Contains(out.String(), "tandem,tandem\n") {
		t.Errorf("a policy that was already given is offered again: %s", out.String())
	}
}

// A shell with the completion script completes through the binary.
func TestBashCompletes(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err) // make test needs bash, too
	}
	var script, log bytes.Buffer
	if code := run(t.Context(), []string{"completion", "bash"}, &script, &log); code != 0 {
		t.Fatalf("code %d, %s", code, log.String())
	}
	file := filepath.Join(t.TempDir(), "tandem.bash")
	if err := os.WriteFile(file, script.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	tandem := binary(t)
	for line, want := range map[string]string{
		"ser":                    "serve",
		"serve --pre":            "--prefill",
		"replay cap":             "capture",
		"sim --speed h100-qwen3": "h100-qwen3-32b-2",
		"replay --policy=dyn":    "dynamo-mixed",
	} {
		const ask = `source "$0"; line="$1 $2"
			__tandem_init_completion() { words=($line); cword=$((${#words[@]} - 1)); cur=${words[cword]}; }
			__ltrim_colon_completions() { :; }; compopt() { :; }
			COMP_TYPE=9; __start_tandem; printf '%s\n' "${COMPREPLY[@]}"`
		got, err := exec.CommandContext(t.Context(), bash, "--norc", "-c", ask, file, tandem, line).CombinedOutput()
		if err != nil || !strings.Contains("\n"+string(got), "\n"+want) {
			t.Errorf("%q completes to %q, want %q: %v", line, got, want, err)
		}
	}
}
