package orchestrator

import (
	"strings"
	"testing"
	"time"

	"tandem/internal/config"
	"tandem/internal/enginesim"
)

// Usual pauses between signs of life are nothing; longer ones count whole, also while they last.
func TestPulse(t *testing.T) {
	p := pulse{usual: 3 * time.Second}
	for _, c := range []struct {
		beat           bool
		at             time.Duration
		silence, stood time.Duration // before the beat
	}{
		{true, 2 * time.Second, 2 * time.Second, 0},
		{true, 5 * time.Second, 3 * time.Second, 0},
		{false, 9 * time.Second, 4 * time.Second, 4 * time.Second},
		{true, 10 * time.Second, 5 * time.Second, 5 * time.Second},
		{false, 11 * time.Second, time.Second, 5 * time.Second},
		{true, 20 * time.Second, 10 * time.Second, 15 * time.Second},
		{false, 20 * time.Second, 0, 15 * time.Second},
	} {
		if silence, stood := p.silence(c.at), p.stood(c.at); silence != c.silence || stood != c.stood {
			t.Errorf("at %v: silent for %v, stood still for %v; want %v and %v", c.at, silence, stood, c.silence, c.stood)
		}
		if c.beat {
			p.beat(c.at)
		}
	}
}

// While we stand still ourselves we hear nobody: the clock that pulses are taken on does not move.
func TestLivedLeavesOutStandingStill(t *testing.T) {
	began := time.Now()
	s := newStallWatch(began)
	s.tick(began.Add(stallTick))
	before := s.lived(began.Add(stallTick))
	if after := s.lived(began.Add(stallTick + time.Minute)); after-before > stallTick {
		t.Errorf("a minute of standing still counts for %v", after-before)
	}
}

// One engine of a batch stands still, and the other prompts are cancelled for it: nobody distrusts the engines that those were on.
func TestSilenceBelongsToItsLeg(t *testing.T) {
	s := setup{prefill: 1, decode: 2, config: func(c *config.Config) {
		c.Timeouts.DecodeFirst, c.Timeouts.Answer, c.Timeouts.DecodeIdle = time.Minute, 2*time.Minute, time.Minute
		c.Pools.Prefill.PollInterval, c.Pools.Decode.PollInterval = time.Second, time.Second
		c.Health.Ejection.Failures = 0 // or what is known to be bad would need no place in the retry budget
	}}
	in(t, s, func(w *world) {
		prompts := make([]string, 16) // more than may be tried again on the engine that stands still
		for i := range prompts {
			prompts[i] = idPrompt(i, 60)
		}
		batch := post("/v1/completions", `{"model":"sim","max_tokens":2500,"temperature":0,"ignore_eos":true,"prompt":[`+strings.Join(prompts, ",")+`]}`)
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
