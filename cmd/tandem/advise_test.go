package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/lab/replay/advise"
)

func TestAdviseCommand(t *testing.T) {
	file := sample(t, 60, 40)
	for _, c := range []struct {
		args []string
		code int
		says []string
	}{
		{
			[]string{"--trace", file, "--replicas", "2", "--profile", "8b"},
			0,
			[]string{
				"2m30s of it at --scale 1: 1 requests a second, of which 48 are counted",
				"2 replicas of h100-llama-8b-1 with one GPU each", "2D holds 8x or more at the usual goal",
				"(--for 10m)",
				"every load that was tried is held", "Only 48 answers are counted",
			},
		},
		{
			[]string{"--trace", file, "--replicas", "2", "--profile", "8b", "--slo-ttft", "1s", "--quiet"},
			0,
			[]string{"Your own goal (first token in 1 s, 100 ms a token)"},
		},
		{[]string{"--trace", file, "--replicas", "1"}, 1, []string{"replicas is 1: want 2"}},
		{[]string{"--trace", file, "--replicas", "1000"}, 1, []string{"replicas is 1000: want 2"}},
		{[]string{"--trace", file, "--good", "90"}, 1, []string{"a share of 90 good answers"}},
		{[]string{"--trace", file, "--good", "NaN"}, 1, []string{"a share of NaN good answers"}},
		{[]string{"--trace", file, "--link", "NaN"}, 2, []string{"--link is NaN"}},
		{[]string{"--trace", file, "--scale", "0"}, 2, []string{"--scale is 0: choose a number above 0"}},
		{[]string{"--trace", file, "--scale", "NaN"}, 2, []string{"--scale is NaN"}},
		{[]string{"--trace", file, "--step", "-5"}, 2, []string{"--step is -5"}},
		{[]string{"--trace", file, "--for", "-1m"}, 2, []string{"--for is -60"}},
		{[]string{"--trace", file, "--slo-ttft", "-1s"}, 2, []string{"--slo-ttft is -1"}},
		{[]string{"--trace", file, "--profile", "h100"}, 1, []string{`no profile "h100"`}},
		{[]string{"--trace", file + ".gone"}, 1, []string{"tandem replay capture"}},
		{[]string{"--trace", file, "--kind", "agents"}, 2, []string{"--trace and --kind", "leave one out"}},
		{[]string{"--kind", "nosuch"}, 1, []string{"no kind of traffic"}},
		{[]string{"--cluster", "8D"}, 2, []string{"there is no flag --cluster"}},
	} {
		var out, log bytes.Buffer
		code := run(t.Context(), append([]string{"advise"}, c.args...), &out, &log)
		if code != c.code {
			t.Errorf("%q: code %d, want %d\n%s%s", c.args, code, c.code, out.String(), log.String())
		}
		for _, want := range c.says {
			if !strings.Contains(out.String()+log.String(), want) {
				t.Errorf("%q: no %q in\n%s%s", c.args, want, out.String(), log.String())
			}
		}
	}
}

func TestAdviceAsJSON(t *testing.T) {
	var out, log bytes.Buffer
	file := sample(t, 60, 40)
	args := []string{"advise", "--trace", file, "--replicas", "3", "--profile", "8b", "--json", "--quiet"}
	if code := run(t.Context(), args, &out, &log); code != 0 {
		t.Fatalf("code %d: %s", code, log.String())
	}
	var got advise.Advice
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Shapes) != 3 || len(got.Verdicts) != 2 ||
		got.Shapes[1].Name != "1P2D" || got.Shapes[0].Now == nil {
		t.Errorf("got %s", out.String())
	}
}
