package enginesim

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

var notSimulated = regexp.MustCompile(`^vllm:nixl_(xfer|post|bytes|num_descriptors)|^http_`)

// buckets are the lines of histograms without their values.
func buckets(metrics string) string {
	var all []string
	for line := range strings.Lines(metrics) {
		name, _, _ := strings.Cut(line, " ")
		if regexp.MustCompile(`_(bucket|count|sum)\{`).MatchString(name) && !notSimulated.MatchString(name) {
			all = append(all, name)
		}
	}
	return strings.Join(all, "\n")
}

// Names, labels, buckets and their order are vLLM's.
func TestHistogramsLookLikeVLLM(t *testing.T) {
	noLeaks(t)
	s := startServer(t, Options{Model: "tiny", ZeroLatency: true, Core: Config{MaxModelLen: 4096}})
	_, _, got := getRaw(t, s, "/metrics")
	for _, g := range readGolden(t) {
		if g.Request.Path != "/metrics" {
			continue
		}
		if got, want := buckets(got), buckets(g.Body); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}

// What is observed is what happened: in an engine of known times.
func TestHistogramsTellTheTruth(t *testing.T) {
	e := New(Config{Cost: Cost{T0: 0.1, D0: 0.02}, MaxSeqs: 1})
	for _, id := range []string{"a", "b"} {
		if err := e.Add(0, &Request{ID: id, Prompt: prompt(uint64(id[0]), 40), MaxTokens: 3, Choices: 1}); err != nil {
			t.Fatal(err)
		}
	}
	for now := time.Duration(0); ; {
		st := e.Step(now)
		if st.Idle {
			break
		}
		now += st.Took
	}
	// a runs from 0 to 140 ms with its first token at 100, b from 140 to 280 with its first at 240.
	for f, want := range map[family]float64{
		promptLength: 80, outputLength: 6, batchTokens: 84, choicesWanted: 2, maxTokensWanted: 6, firstTokenTime: 0.34, interTokenTime: 0.08, perTokenTime: 0.04,
		wholeTime: 0.42, queueTime: 0.14, inferenceTime: 0.28, prefillTime: 0.2, decodeTime: 0.08, preemptionCount: 0, promptComputed: 80,
	} {
		h, n := e.histograms()[f], uint64(0)
		for _, c := range h.counts {
			n += c
		}
		wantN := uint64(2)
		switch f {
		case batchTokens:
			wantN = 6
		case interTokenTime:
			wantN = 4
		}
		if n != wantN || h.sum < want-1e-9 || h.sum > want+1e-9 {
			t.Errorf("%s: %d observations of %g in all, want %d of %g", familyNames[f], n, h.sum, wantN, want)
		}
	}
	e.Restart()
	if h := e.histograms()[wholeTime]; h.sum != 0 {
		t.Error("a new process remembers")
	}
}

// A value on a bound belongs to its bucket, as in Prometheus.
func TestHistogramBounds(t *testing.T) {
	h := histogram{bounds: []float64{1, 2}, counts: make([]uint64, 3)}
	for _, v := range []float64{0, 1, 1.5, 2, 2.5} {
		h.observe(v)
	}
	if h.counts[0] != 2 || h.counts[1] != 2 || h.counts[2] != 1 {
		t.Errorf("counts %v", h.counts)
	}
}
