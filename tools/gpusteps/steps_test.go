package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// TestFormulaTakesStepsForTheSumOfTheirParts compares the formula with steps of an H100 and an H200. Steps
// with a prompt and streams together were not used for the fit.
func TestFormulaTakesStepsForTheSumOfTheirParts(t *testing.T) {
	for _, name := range []string{"h100", "h200"} {
		for _, steps := range timed(t, name) {
			cost, err := fit(steps)
			if err != nil {
				t.Fatal(err)
			}
			mixed := ratios(steps, cost, (*step).mixed)
			if n := len(mixed); n != 96 {
				t.Fatalf("%s, %s: %d steps of both, want 96", name, steps[0].Model, n)
			}
			if m := mixed[len(mixed)/2]; m < 0.95 || m > 1.05 {
				t.Errorf("%s, %s: %.3f times the formula in the median, want 0.95 to 1.05", name, steps[0].Model, m)
			}
			if least, most := mixed[0], mixed[len(mixed)-1]; least < 0.9 || most > 1.35 {
				t.Errorf("%s, %s: %.3f to %.3f times the formula, want 0.9 to 1.35",
					name, steps[0].Model, least, most)
			}
		}
	}
}

// TestPresetsTakeAsLongAsTheGPU compares the presets of the model that needs one GPU with the timed steps.
func TestPresetsTakeAsLongAsTheGPU(t *testing.T) {
	for name, preset := range map[string]string{"h100": "h100-llama-8b-1", "h200": "h200-llama-8b-1"} {
		p, ok := core.FindPreset(preset)
		if !ok {
			t.Fatalf("no preset %s", preset)
		}
		p.Cost.Host = 0 // steps.py leaves the host out
		steps := timed(t, name)[0]
		streams := ratios(steps, p.Cost, func(s *step) bool { return s.New == 0 })
		if least, most := streams[0], streams[len(streams)-1]; least < 0.93 || most > 1.07 {
			t.Errorf("%s: streams alone take %.3f to %.3f times what it says, want 0.93 to 1.07",
				preset, least, most)
		}
		prompts := ratios(steps, p.Cost, func(s *step) bool { return s.Streams == 0 })
		if least, most := prompts[0], prompts[len(prompts)-1]; least < 0.7 || most > 1.3 {
			t.Errorf("%s: prompts alone take %.3f to %.3f times what it says, want 0.7 to 1.3",
				preset, least, most)
		}
	}
}

func TestReportTellsEachStep(t *testing.T) {
	var out strings.Builder
	if err := run([]string{filepath.Join("testdata", "h100.jsonl.gz")}, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"NVIDIA H100 80GB HBM3, llama-8b\n", "a prompt beside streams: 1.0",
		"64 of 4096", "8192, 8192", "attention of both in one launch: 1.00",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in the report:\n%s", want, out.String())
		}
	}
}

func TestReadNamesTheLine(t *testing.T) {
	good := `{"new": 1, "streams": 0, "seconds": 0.1}` + "\n"
	for _, bad := range []string{`{"new": 1`, `{"new": 1, "seconds": 0}`, `{"seconds": 1}`} {
		if _, err := read(strings.NewReader(good + bad)); err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%s: %v, want an error of line 2", bad, err)
		}
	}
	if err := run(nil, nil); err == nil {
		t.Error("a missing file is no error")
	}
}

// timed are the timed steps of a GPU, by model.
func timed(t *testing.T, gpu string) [][]step {
	t.Helper()
	steps, err := readFile(filepath.Join("testdata", gpu+".jsonl.gz"))
	if err != nil {
		t.Fatal(err)
	}
	parts := byModel(steps)
	if len(parts) != 2 {
		t.Fatalf("%s: %d models, want 2", gpu, len(parts))
	}
	return parts
}
