package core

import (
	"testing"
	"time"
)

// The histograms of an engine with known times have the right values.
func TestHistogramsTellTheTruth(t *testing.T) {
	e := New(Config{Cost: Cost{T0: 0.1, D0: 0.02}, MaxSeqs: 1})
	for _, id := range []string{"a", "b"} {
		if err := e.Add(0,
			&Request{ID: id, Prompt: prompt(uint64(id[0]), 40), MaxTokens: 3, Choices: 1}); err != nil {
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
	// a runs from 0 to 140 ms, with its first token at 100 ms; b runs from 140 to 280 ms, with its first
	// token at 240 ms.
	for f, want := range map[family]float64{
		promptLength: 80, outputLength: 6, batchTokens: 84, choicesWanted: 2, maxTokensWanted: 6,
		firstTokenTime: 0.34, interTokenTime: 0.08, perTokenTime: 0.04,
		wholeTime: 0.42, queueTime: 0.14, inferenceTime: 0.28, prefillTime: 0.2, decodeTime: 0.08,
		preemptionCount: 0, promptComputed: 80,
	} {
		h, n := e.Histograms()[f], uint64(0)
		for _, c := range h.Counts {
			n += c
		}
		wantN := uint64(2)
		switch f {
		case batchTokens:
			wantN = 6
		case interTokenTime:
			wantN = 4
		}
		if n != wantN || h.Sum < want-1e-9 || h.Sum > want+1e-9 {
			t.Errorf("%s: %d observations with the sum %g, want %d with %g", h.Name, n, h.Sum, wantN, want)
		}
	}
	e.Restart()
	if h := e.Histograms()[wholeTime]; h.Sum != 0 {
		t.Error("the counts survive a restart")
	}
}

// A value equal to a bound belongs to that bound's bucket, as in Prometheus.
func TestHistogramBounds(t *testing.T) {
	h := Histogram{Bounds: []float64{1, 2}, Counts: make([]uint64, 3)}
	for _, v := range []float64{0, 1, 1.5, 2, 2.5} {
		h.observe(v)
	}
	if h.Counts[0] != 2 || h.Counts[1] != 2 || h.Counts[2] != 1 {
		t.Errorf("counts %v", h.Counts)
	}
}
