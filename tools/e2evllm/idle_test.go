package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// leasing is an engine whose blocks are in use for the first n looks. After that they were given back, or
// their lease has expired.
func leasing(t *testing.T, n int, runsOut bool) *engine {
	t.Helper()
	looks := 0
	return fakeEngine(t, "p0", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		used, out := 0.018, 0
		if looks++; looks > n {
			used = 0
			if runsOut {
				out = 1
			}
		}
		fmt.Fprintf(w, "vllm:kv_cache_usage_perc{} %v\nvllm:num_requests_running{} 0\n", used)
		fmt.Fprintf(w, "vllm:num_requests_waiting{} 0\nvllm:nixl_num_kv_expired_reqs_total{} %d\n", out)
	}))
}

// TestWhatIsLeftInAnEngine checks that blocks which are given back late are no error, but kept blocks and
// expired leases are.
func TestWhatIsLeftInAnEngine(t *testing.T) {
	for name, c := range map[string]struct {
		looks   int
		runsOut bool
		limit   time.Duration
		want    string
	}{
		"nothing":           {0, false, time.Minute, ""},
		"given back, later": {6, false, time.Minute, ""},
		"kept": {
			1 << 30, false, 300 * time.Millisecond, "p0 still uses 1.80 % of its blocks, with 0 requests that run",
		},
		"run out": {6, true, time.Minute, "1 leases of p0 were not given back and ran out"},
	} {
		t.Run(name, func(t *testing.T) {
			s := stage{engines: []*engine{leasing(t, c.looks, c.runsOut)}}
			_, err := s.awaitIdle(t.Context(), c.limit)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
