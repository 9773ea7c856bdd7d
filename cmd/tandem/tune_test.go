package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/lab/replay/claims"
)

func TestTuneCommand(t *testing.T) {
	file := sample(t, 20, 4)
	raw := filepath.Join(t.TempDir(), "raw.yaml")
	if err := os.WriteFile(raw, []byte("pools: {decode: {replicas: [{url: 'http://d:1'}]}}\nlocal: always\n"+
		"experimental: {scoring: {units: raw}}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{
			[]string{"--trace", file, "--cluster", "1D", "--profile", "8b", "--seeds", "1", "--quiet"},
			0,
			"nothing better was found",
		},
		{[]string{"--trace", file, "--objective", "beauty"}, 2, "there are mean-ttft"},
		{[]string{"--trace", file + ".gone"}, 1, "tandem replay capture"},
		{[]string{"--trace", file, "--config", raw}, 1, "raw weights cannot be tuned"},
	} {
		var out, log bytes.Buffer
		code := run(t.Context(), append([]string{"tune"}, c.args...), &out, &log)
		if code != c.code || !strings.Contains(out.String()+log.String(), c.says) {
			t.Errorf("%q: code %d, %s%s", c.args, code, out.String(), log.String())
		}
	}
}

// The change can be pasted into a configuration. The text says which changes may be chance and which
// figures get worse.
func TestTuningIsTold(t *testing.T) {
	mean, err := claims.ObjectiveNamed("mean-ttft")
	if err != nil {
		t.Fatal(err)
	}
	s := &claims.Search{From: claims.Weights{Beta: 1, Gamma: 1, Penalty: 0.25}, Objective: mean, Seeds: 5}
	tuning := &claims.Tuning{
		Weights: claims.Weights{Alpha: 2, Beta: 1, Gamma: 1, Penalty: 0.5}, Tried: 30,
		Gain: claims.Estimate{Value: 0.1, Low: -0.01, High: 0.2},
		Others: []claims.Effect{
			{Name: "goodput", Gain: claims.Estimate{Value: 0.01, Low: 0, High: 0.02}},
			{Name: "p99-tpot", Gain: claims.Estimate{Value: -0.2, Low: -0.3, High: -0.1}},
		},
	}
	var out bytes.Buffer
	if err := printTuning(&out, s, tuning); err != nil {
		t.Fatal(err)
	}
	want := ` scoring:
-  alpha: auto
+  alpha: 2
-  decode_penalty: 0.25
+  decode_penalty: 0.5

mean-ttft: +10.0 % (95 %: -1.0 to +20.0), + is better, over 5 seeds ` +
		`(30 weights tried on the first half of the time, judged on all of it)
That may be chance: the interval includes none at all. ` +
		`Keep the weights as they are, or tune on a longer trace.
  goodput                    +1.0 % (95 %: +0.0 to +2.0)
  p99-tpot                   -20.0 % (95 %: -30.0 to -10.0)   <- loses
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	out.Reset()
	tuning.Gain = claims.Estimate{Value: -0.006, Low: -0.017, High: 0.007}
	if err := printTuning(&out, s, tuning); err != nil || strings.Contains(out.String(), "scoring:") ||
		!strings.HasPrefix(out.String(), "nothing better was found in 30 tries") {
		t.Errorf("a loss is printed as a change: %v\n%s", err, out.String())
	}
}
