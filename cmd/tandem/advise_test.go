package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"tandem/internal/replay/advise"
)

func TestAdviseCommand(t *testing.T) {
	file := sample(t, 60, 40)
	for _, c := range []struct {
		args []string
		code int
		says []string
	}{
		{
			[]string{"-trace", file, "-replicas", "2", "-profile", "8b"},
			0,
			[]string{
				"10m0s of it at 1x, on 2 replicas of 8b", "2D holds", "The usual goal", "The tight goal",
				"do not split", "ask again with -replicas 2",
			},
		},
		{
			[]string{"-trace", file, "-replicas", "2", "-profile", "8b", "-slo-ttft", "1s", "-quiet"},
			0,
			[]string{"Your own goal (first token in 1 s,"},
		},
		{[]string{"-trace", file, "-replicas", "1"}, 1, []string{"nothing can be split"}},
		{[]string{"-trace", file, "-good", "90"}, 1, []string{"a share of 90 good answers"}},
		{[]string{"-trace", file + ".gone"}, 1, []string{"tandem replay capture"}},
		{[]string{"-kind", "nosuch"}, 1, []string{"no kind of traffic"}},
		{[]string{"-cluster", "8D"}, 2, []string{"-replicas"}},
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
	args := []string{"advise", "-trace", file, "-replicas", "3", "-profile", "8b", "-json", "-quiet"}
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
