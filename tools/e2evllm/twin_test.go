package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// oneOf makes a twin of two simulated engines. The second engine stands for the imitation of the real
// engine.
func oneOf(t *testing.T, name string, blocks int, change func(*enginesim.Options)) *twin {
	t.Helper()
	w := &twin{name: name, blocks: blocks}
	for i := range w.urls {
		o := enginesim.Options{
			Model: modelName, ScaleOut: true, ZeroLatency: true, NoRequestIDs: true,
			EventsEndpoint: "tcp://127.0.0.1:0",
			Core: core.Config{
				BlockSize: blockTokens, Blocks: blocks, MaxModelLen: contextTokens, Vocab: 2048, HashSeed: fmt.Sprint(i),
				Weights: fmt.Sprint(i),
			},
		}
		if i == 1 && change != nil {
			change(&o)
		}
		s, err := enginesim.Start(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		w.urls[i] = s.URL()
		w.events[i], w.replay[i] = s.Endpoints(0)
		if w.ears[i], err = listen(w.events[i]); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(w.close)
	return w
}

// Engines with different weights and hashes count as equal. Every other difference is detected.
func TestTwins(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*enginesim.Options) // change of the imitation
		want   string
	}{
		{"the same", nil, ""},
		{"no salt in events", func(o *enginesim.Options) { o.Wrong.NoSalt = true }, "the events differ"},
		{"one block more", func(o *enginesim.Options) { o.Core.Blocks++ }, "of the blocks in use instead of"},
		{"smaller steps", func(o *enginesim.Options) { o.Core.MaxBatchedTokens = 200 }, "the events differ"},
		{"no details of usage", func(o *enginesim.Options) { o.NoUsageDetails = true }, "prompt_tokens_details"},
		{"old replay", func(o *enginesim.Options) { o.Version = "0.25.0" }, "the replays differ"},
		{"array events", func(o *enginesim.Options) { o.Version = "0.23.0" }, "is not written as 0.32 did"},
		{
			"lost events", func(o *enginesim.Options) { o.Faults = []enginesim.Fault{{Kind: "pause_events"}} },
			"no events come",
		},
		{"no prefix caching", func(o *enginesim.Options) { o.Core.NoPrefixCaching = true }, "no events come"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pair := &twinnedPair{oneOf(t, "p", prefillBlocks, c.change), oneOf(t, "d", decodeBlocks, c.change)}
			err := pair.play(t.Context(), 3, 150)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// A series that only one of the two engines has is detected.
func TestTwinSeries(t *testing.T) {
	if err := sameSeries(t.Context(), oneOf(t, "p", prefillBlocks, nil)); err != nil {
		t.Error(err)
	}
	err := sameSeries(t.Context(),
		oneOf(t, "p", prefillBlocks, func(o *enginesim.Options) { o.Wrong.NoStats = true }))
	if err == nil || !strings.Contains(err.Error(), "the simulated engine has no vllm:kv_cache_usage_perc") {
		t.Errorf("%v, want a series that is missing", err)
	}
}

func TestFirstDifference(t *testing.T) {
	if d := firstDifference([]string{"a", "b"}, []string{"a", "b"}); d != "" {
		t.Error(d)
	}
	for _, other := range [][]string{{"a"}, {"a", "b", "c"}, {"a", "c"}, nil} {
		if firstDifference(other, []string{"a", "b"}) == "" {
			t.Errorf("%q is as a, b", other)
		}
	}
}
