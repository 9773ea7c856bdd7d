package orchestrator

import (
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
)

// One engine freezes during a batch, so the other prompts of the batch are cancelled. The engines of these
// other prompts are not distrusted.
func TestSilenceBelongsToItsLeg(t *testing.T) {
	s := setup{prefill: 1, decode: 2, config: func(c *config.Config) {
		c.Timeouts.DecodeFirst = time.Minute
		c.Timeouts.Answer = 2 * time.Minute
		c.Timeouts.DecodeIdle = time.Minute
		c.Pools.Prefill.PollInterval, c.Pools.Decode.PollInterval = time.Second, time.Second
		// otherwise the frozen engine would be known as bad, and retries would be free
		c.Health.Ejection.Failures = 0
	}}
	in(t, s, func(w *world) {
		prompts := make([]string, 16) // more than the retry budget allows
		for i := range prompts {
			prompts[i] = idPrompt(i, 60)
		}
		batch := post("/v1/completions", `{"model":"sim","max_tokens":2500,"temperature":0,"ignore_eos":true,`+
			`"prompt":[`+strings.Join(prompts, ",")+`]}`)
		later(2*time.Second, fault(enginesim.Fault{Kind: "freeze", For: time.Minute}))(w, w.d[0])
		if got := w.ask(batch); got.status != 504 {
			w.t.Errorf("status %d, want 504 of the leg on the frozen engine: %.200s", got.status, got.raw)
		}
		time.Sleep(time.Second)
		if n := w.count("tandem_decode_distrusted_total", w.d[0].addr); n == 0 {
			w.t.Error("the frozen engine is still trusted: this test shows nothing")
		}
		if n := w.count("tandem_decode_distrusted_total", w.d[1].addr); n != 0 {
			w.t.Errorf("the healthy engine was distrusted %d times", n)
		}
		time.Sleep(time.Minute + 10*time.Second)
	})
}
