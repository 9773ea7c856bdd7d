package orchestrator

import (
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// One engine of a batch stands still, and the other prompts are cancelled for it: nobody distrusts the
// engines that those were on.
func TestSilenceBelongsToItsLeg(t *testing.T) {
	s := setup{prefill: 1, decode: 2, config: func(c *config.Config) {
		c.Timeouts.DecodeFirst = time.Minute
		c.Timeouts.Answer = 2 * time.Minute
		c.Timeouts.DecodeIdle = time.Minute
		c.Pools.Prefill.PollInterval, c.Pools.Decode.PollInterval = time.Second, time.Second
		c.Health.Ejection.Failures = 0 // or what is known to be bad would need no place in the retry budget
	}}
	in(t, s, func(w *world) {
		prompts := make([]string, 16) // more than may be tried again on the engine that stands still
		for i := range prompts {
			prompts[i] = idPrompt(i, 60)
		}
		batch := post("/v1/completions", `{"model":"sim","max_tokens":2500,"temperature":0,"ignore_eos":true,`+
			`"prompt":[`+strings.Join(prompts, ",")+`]}`)
		later(2*time.Second, fault(enginesim.Fault{Kind: "freeze", For: time.Minute}))(w, w.d[0])
		if got := w.ask(batch); got.status != 504 {
			w.t.Errorf("status %d, want that of the leg that was given up: %.200s", got.status, got.raw)
		}
		time.Sleep(time.Second)
		if n := w.count("tandem_decode_distrusted_total", w.d[0].addr); n == 0 {
			w.t.Error("the engine that stood still is trusted: this test tests nothing")
		}
		if n := w.count("tandem_decode_distrusted_total", w.d[1].addr); n != 0 {
			w.t.Errorf("the healthy engine was distrusted %d times", n)
		}
		time.Sleep(time.Minute + 10*time.Second)
	})
}
