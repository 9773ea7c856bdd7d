package orchestrator

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/replica"
)

// A reload turns KV events off and then on again, over real sockets. Events from before are replayed, and
// nothing is left of what the index assumed in between.
func TestReloadFromEventsAndBack(t *testing.T) {
	w := newWorld(t, streams(setup{prefill: 1, decode: 1}))
	defer w.close()
	to := func(mode string) {
		cfg := *w.cfg
		indexed(mode)(&cfg)
		if err := w.o.Apply(&cfg); err != nil {
			t.Fatal(err)
		}
	}
	blocks := func() int { return w.o.prefill.Status(time.Now())[0].Blocks }
	trust := func() replica.Trust { return w.o.prefill.Status(time.Now())[0].Trust }
	live := func() bool { return w.live() == 2 && trust() == replica.Live }

	until(t, "both streams live", live)
	w.tell("Ada", 1)
	w.tell("Bertram", 1)
	until(t, "the blocks of both prompts", func() bool { return blocks() > 15 })
	reported := blocks()

	to(config.IndexApproximate)
	if got := blocks(); got != 0 || trust() != replica.Approximate {
		t.Errorf("approximate: %d blocks are known and the index is %v", got, trust())
	}
	until(t, "no stream", func() bool { return w.live() == 0 })
	if r := w.tell("Ada", 1); r.Captured != 0 || r.Delivered == 0 {
		t.Errorf("approximate: %d tokens predicted, %d delivered", r.Captured, r.Delivered)
	}
	if got := blocks(); got == 0 || got >= reported {
		t.Errorf("approximate: %d blocks assumed for one of two prompts that have %d together", got, reported)
	}

	to(config.IndexEvents)
	until(t, "both streams live again", live)
	until(t, "what was told before", func() bool { return blocks() == reported })
	for _, c := range []string{"Ada", "Bertram"} {
		if r := w.tell(c, 1); r.Captured == 0 || r.Captured != r.Delivered {
			t.Errorf("with events again: %d tokens of %s predicted, %d delivered", r.Captured, c, r.Delivered)
		}
	}

	for range 3 { // faster than the watchers notice
		to(config.IndexOff)
		to(config.IndexEvents)
	}
	until(t, "both streams live after haste", live)
	until(t, "what was told before haste", func() bool { return blocks() == reported })
}
