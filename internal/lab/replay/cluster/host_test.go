package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

// Calculated by hand: each leg waits 7 ms at its server, and a prompt of 32 tokens waits another 3.2 ms
// before the first leg.
func TestHostTimeByHand(t *testing.T) {
	text := header + `{"t":0,"in":32,"out":3}`
	c := config(1, 1)
	res, err := play(t, c, &script{}, text, 1)
	before := must(t, res, err).Records[0]
	c.Host = HostTime{Request: 7 * time.Millisecond, Token: 100 * time.Microsecond, Step: 5 * time.Millisecond}
	res, err = play(t, c, &script{}, text, 1)
	split := must(t, res, err).Records[0]
	if got := split.TTFT - before.TTFT; got != 17200*time.Microsecond {
		t.Errorf("two legs are %v later", got)
	}
	if split.Total-split.TTFT != before.Total-before.TTFT {
		t.Errorf("the rest of the answer takes %v, want %v", split.Total-split.TTFT, before.Total-before.TTFT)
	}
	s := &script{place: local}
	res, err = play(t, config(1, 1), s, text, 1)
	before = must(t, res, err).Records[0]
	res, err = play(t, c, s, text, 1)
	if got := must(t, res, err).Records[0].TTFT - before.TTFT; got != 10200*time.Microsecond {
		t.Errorf("one leg is %v later", got)
	}
	c.SetStepTime()
	res, err = play(t, c, s, text, 1) // three steps
	if got := must(t, res, err).Records[0].Total - before.Total; got != 25200*time.Microsecond {
		t.Errorf("three steps that take 5 ms longer delay the end by %v", got)
	}
}

func TestParseHostTime(t *testing.T) {
	for _, name := range []string{"", "profile"} {
		if h, err := ParseHostTime(name); err != nil || h != (HostTime{}) {
			t.Errorf("%q: %+v, %v", name, h, err)
		}
	}
	if h, err := ParseHostTime("measured"); err != nil || h.Step <= 0 || h.Request <= 0 || h.Token <= 0 {
		t.Errorf("measured: %+v, %v", h, err)
	}
	if _, err := ParseHostTime("x"); err == nil || !strings.Contains(err.Error(), "measured") {
		t.Errorf("x: %v", err)
	}
}

// watcher is a router that keeps the reports of the prefill engine.
type watcher struct {
	script
	waiting []int
	at      []time.Duration
}

func (w *watcher) Observe(side Side, _ int, l replica.Load, now time.Time) {
	if side == Prefill && l.Source == replica.Metrics {
		w.waiting, w.at = append(w.waiting, l.Waiting), append(w.at, now.Sub(Time(0)))
	}
}

// A prompt of a second fills the step. The one that comes meanwhile waits. A report of the present says so at
// once, and a report of the last step never: the prompt runs in the next step.
func TestReportsOfTheLastStep(t *testing.T) {
	for _, last := range []bool{false, true} {
		c := config(1, 1)
		c.Poll, c.StepLoad = 100*time.Millisecond, last
		w := &watcher{}
		res, err := play(t, c, w, header+`{"t":0,"in":1000,"out":2}`+"\n"+`{"t":0.3,"in":1000,"out":2}`, 1)
		must(t, res, err)
		seen := 0
		for i, n := range w.waiting {
			if n > 0 && w.at[i] < 1000*time.Millisecond {
				seen++
			}
		}
		if seen > 0 == last || len(w.waiting) < 10 {
			t.Errorf("reports of the last step %v: %d of %d say that a prompt waits", last, seen, len(w.waiting))
		}
	}
}
