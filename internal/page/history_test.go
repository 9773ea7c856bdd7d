package page

import (
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Each point counts the events of its step. The newest hour is kept. Missed steps are points without data.
func TestHistory(t *testing.T) {
	h := NewHistory()
	now := time.Unix(1_000_000, 0)
	fleet := []Replica{
		{Pool: "prefill", Name: "p0", Up: true, Usage: 0.5, Running: 2},
		{Pool: "decode", Name: "d0", Up: true, Usage: -1},
	}
	h.Close(now, fleet)
	for step := range HistoryPoints {
		for range step {
			h.Add(Ended{
				Prefill: "p0", Decode: "d0", Split: step%2 == 0, Failed: step%3 == 0, First: 100, Token: 10, Prompt: 100,
				Available: 80, Delivered: 60,
			})
		}
		now = now.Add(HistoryStep)
		h.Close(now, fleet)
	}
	p := h.Fleet()
	requests := p.Series["requests"]
	if len(requests) != HistoryPoints || requests[0] != 0 || requests[HistoryPoints-1] != HistoryPoints-1 ||
		!p.End.Equal(now) {
		t.Errorf("%d points from %v to %v, which end at %v", len(requests), requests[0], requests[len(requests)-1],
			p.End)
	}
	for name, want := range map[string]float32{
		"hits_possible": 0.8, "hits_delivered": 0.6, "kv_prefill": 0.5, "split": 1, "ttft_p50": 100, "itl_p99": 10,
	} {
		if got := p.Series[name][HistoryPoints-2]; math.Abs(float64(got-want)) > 0.05*float64(want) {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if !math.IsNaN(float64(p.Series["kv_decode"][5])) {
		t.Error("the KV use of a pool that nobody reports is known")
	}
	of, ok := h.Of("p0")
	if !ok || of.Series["running"][7] != 2 || of.Series["kv"][7] != 0.5 ||
		of.Series["requests"][HistoryPoints-1] != 359 {
		t.Errorf("p0: %v", of.Series)
	}
	if sum, split, full := h.Sums(2); sum != 358+359 || split != 358 || !full {
		t.Errorf("the newest two steps: %d, %d split, %v", sum, split, full)
	}
	h.Close(now.Add(4*HistoryStep), fleet[:1])
	p = h.Fleet()
	if got := p.Series["ttft_p50"][HistoryPoints-5:]; !math.IsNaN(float64(got[1])) ||
		math.IsNaN(float64(got[0])) {
		t.Errorf("around three missed steps: %v", got)
	}
	if got := p.Series["requests"][HistoryPoints-2]; !math.IsNaN(float64(got)) {
		t.Errorf("%v requests in a missed step", got)
	}
	if _, ok := h.Of("d0"); ok {
		t.Error("a replica that has left is remembered")
	}
	text, err := json.Marshal(p)
	if err != nil || !strings.Contains(string(text), "null") || len(text) > 60_000 {
		t.Errorf("%d bytes of JSON, %v", len(text), err)
	}
}

// A quantile of the history differs from the true quantile by at most one class.
func TestQuantilesOfTheHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		times := rapid.SliceOfN(rapid.Float64Range(0.5, 90_000), 1, 300).Draw(t, "times")
		q := rapid.Float64Range(0, 0.999).Draw(t, "q")
		var h histogram
		for _, ms := range times {
			h.add(ms)
		}
		h.add(-1)
		h.add(math.NaN())
		slices.Sort(times)
		want := times[int(q*float64(len(times)))]
		if got := float64(h.quantile(q)); got < want/wider || got > want*wider {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

// The memory of an hour with 64 replicas.
func TestMemoryOfTheHistory(t *testing.T) {
	var fleet []Replica
	for i := range 64 {
		fleet = append(fleet, Replica{Pool: "decode", Name: fmt.Sprintf("d%d", i), Up: true, Usage: 0.5})
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	h := NewHistory()
	for i := range 3 * HistoryPoints {
		h.Add(Ended{Decode: "d1", First: 100, Token: 10, Available: -1})
		h.Close(time.Unix(int64(10*i), 0), fleet)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	took := int(after.HeapAlloc - before.HeapAlloc)
	t.Logf("%d bytes, %d a replica", took, took/64)
	if took > 64*10_500+60_000 {
		t.Errorf("it takes %d bytes", took)
	}
	runtime.KeepAlive(h)
}
