package orchestrator

import (
	"testing"

	"tandem/internal/enginesim"
)

// Engines that speculate leave the last tokens of a prompt to decode: such prompts are split like others,
// whatever their length.
func TestWhatPrefillLeavesIsSplit(t *testing.T) {
	for _, left := range []int{1, 3, 7} {
		s := setup{engine: func(_ string, o *enginesim.Options) { o.Core.Withhold, o.Core.Speculative = left, left+1 }}
		in(t, s, func(w *world) {
			for _, p := range []prompt{
				chat(true), completion(false), chat(false),
				post("/v1/completions", `{"model":"sim","max_tokens":9,"temperature":0,"prompt":`+idPrompt(1, 64)+`}`),
				post("/v1/completions", `{"model":"sim","max_tokens":9,"temperature":0,"prompt":`+idPrompt(2, 5)+`}`),
			} {
				w.exact(p, w.ask(p))
			}
			if n := w.count("tandem_transfer_params_refused_total", ""); n != 0 {
				t.Errorf("%d withheld: %d answers were refused", left, n)
			}
			moved := 0
			for _, d := range w.d {
				moved += int(d.Stats()[0].NixlTransfers)
			}
			if moved != 5 {
				t.Errorf("%d withheld: %d prompts were moved, want 5", left, moved)
			}
		})
	}
}
