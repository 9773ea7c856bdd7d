package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheckOfClaims(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"replay", "check", "--all", "--list"}, 0, "churn_errors_beyond_best_baseline/conversation/8P8D"},
		{[]string{"replay", "suite", "x"}, 2, `no command "suite"`},
		{[]string{"replay", "check", "--list"}, 0, "quick_hit_over_sticky/agents\n"},
		{[]string{"replay", "check", "--traces", none}, 1, "--traces names the folder"},
		{
			[]string{"replay", "check", "--traces", t.TempDir(), "--only", "x"},
			1,
			`no claim begins with any of ["x"]`,
		},
		{[]string{"replay", "check", "--sort"}, 2, "there is no flag --sort"},
	} {
		var out, log bytes.Buffer
		if tt.args[2] == "--traces" && tt.code == 1 {
			tt.args = append(tt.args, "--out", filepath.Join(t.TempDir(), "replay.json"))
		}
		if code := run(t.Context(), tt.args, &out, &log); code != tt.code ||
			!strings.Contains(out.String()+log.String(), tt.want) {
			t.Errorf("%q: code %d, %s%s", tt.args, code, out.String(), log.String())
		}
	}
}
