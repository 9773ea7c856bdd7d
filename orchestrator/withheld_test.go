package orchestrator

import (
	"fmt"
	"sync"
	"testing"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// Engines with speculative decoding leave the last tokens of a prompt to the decode engine. Such prompts
// are split as others, whatever their length.
func TestWhatPrefillLeavesIsSplit(t *testing.T) {
	for _, left := range []int{1, 3, 7} {
		s := setup{engine: func(_ string, o *enginesim.Options) {
			o.Core.Withhold, o.Core.Speculative = left, left+1
		}}
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
				t.Errorf("%d withheld: the blocks of %d prompts were moved, want 5", left, moved)
			}
		})
	}
}

// A decode engine keeps slots for draft tokens ahead of its sequences. The router does not count them as
// free room, which prevents preemptions.
func TestSlotsOfDraftsAreKeptFree(t *testing.T) {
	preempted := func(reported int) (n int) {
		s := setup{
			prefill: 1, decode: 1,
			config: func(c *config.Config) {
				c.Pools.Decode.SpeculativeTokens = reported
				c.Scoring.HeadroomMargin, c.Scoring.ExpectedOutput = 0, 48
			},
			engine: func(name string, o *enginesim.Options) {
				o.Core.BlockSize, o.Core.Speculative = 4, 16
				if name == "d0" {
					o.Core.Blocks = 200
				}
			},
		}
		in(t, s, func(w *world) {
			var wg sync.WaitGroup
			for i := range 12 {
				p := post("/v1/completions", fmt.Sprintf(
					`{"model":"sim","max_tokens":48,"ignore_eos":true,"temperature":0,"prompt":%s}`, idPrompt(i, 64)))
				wg.Go(func() {
					if got := w.send(w.t.Context(), "front:80", p); got.status != 200 {
						w.t.Errorf("%d %s", got.status, got.raw)
					}
				})
			}
			wg.Wait()
			w.asked = 12
			n = int(w.d[0].Stats()[0].Preemptions)
		})
		return n
	}
	if without, with := preempted(0), preempted(16); without == 0 || with > 0 {
		t.Errorf("%d preemptions without counting the slots, %d with counting; want some and none", without, with)
	}
}
