//go:build linux

package main

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// Engines stand still under traffic, for shorter and longer times than a lease. When they continue, each
// answer is exact or a clear error.
func TestEnginesStandStill(t *testing.T) {
	for _, c := range []struct {
		name   string
		lease  time.Duration
		extra  string
		victim func(f *fleet) *engine
	}{
		{"prefill", 9 * time.Second, "", func(f *fleet) *engine { return f.prefill[0] }},
		{"decode", 9 * time.Second, "", func(f *fleet) *engine { return f.decode[0] }},
		{
			"decode, with less patience", 9 * time.Second,
			"timeouts: {decode_first: 1s, decode_idle: 1s, answer: 1s, probe: 500ms}\n",
			func(f *fleet) *engine { return f.decode[0] },
		},
		{"prefill, beyond the lease", 3 * time.Second, "", func(f *fleet) *engine { return f.prefill[0] }},
		{"decode, beyond the lease", 3 * time.Second, "", func(f *fleet) *engine { return f.decode[0] }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			// With few blocks, freed blocks are soon used again.
			f := newFleet(t,
				setting{lease: c.lease, engines: append([]string{"--blocks", "600"}, fast[:4]...), extra: c.extra})
			l := f.traffic(8, 24)
			l.more(50)
			e := c.victim(f)
			e.freeze()
			pause(4 * time.Second)
			e.unfreeze()
			l.more(100)
			l.end()
			f.quiet(f.set.lease + time.Second)
			f.audit(l.asked)
		})
	}
}

// The router stands still between the legs until the prefill's blocks have been freed and used by other
// requests. After that its transfer parameters are useless.
func TestRouterStandsStillBetweenTheLegs(t *testing.T) {
	t.Parallel()
	f := newFleet(t,
		setting{engines: append([]string{"--blocks", "400", "--max-model-len", "4096"}, fast[:2]...)})
	w := newWriter(6)
	for _, e := range f.prefill {
		e.slow(10)
	}
	var asked []*running
	for i := range 4 {
		q := w.completion(w.ids(1000), 10)
		if i%2 == 0 {
			q = q.streamed()
		}
		asked = append(asked, f.begin(q))
	}
	eventually(t, patience(10*time.Second),
		func() error { return errors.Join(f.holds(f.prefill[:1]), f.holds(f.prefill[1:])) })
	f.router.freeze()
	for _, e := range f.prefill {
		ask(t.Context(), f.asker, e.url, w.completion(w.ids(5), 1), nil) // queued after the prefills
		eventually(t, patience(10*time.Second), func() error {
			if f.series(e.url+"/metrics", "vllm:kv_cache_usage_perc") > 0 {
				return fmt.Errorf("the leases on %s have not ended", e.id)
			}
			return nil
		})
		e.slow(1)
		for range 8 { // other requests use the blocks
			ask(t.Context(), f.asker, e.url, w.completion(w.ids(1500), 1), nil)
		}
	}
	f.router.unfreeze()
	good := 0
	for _, r := range asked {
		v, why := r.judge()
		if v == wrong {
			t.Error(why)
		}
		if v == exact {
			good++
		}
		t.Log(v, why)
	}
	stale := f.metric("tandem_transfer_params_refused_total", `reason="expired"`)
	t.Logf("%d of %d exact; %v prefills done again", good, len(asked), stale)
	if stale == 0 {
		t.Error("no transfer parameters were too old: the router did not stand still between the legs")
	}
	if n := f.metric("tandem_stalled_seconds_total"); n < 2 {
		t.Errorf("the router measured a stall of %v s", n)
	}
	f.quiet(f.set.lease + time.Second)
	var qs []question
	for _, r := range asked {
		qs = append(qs, r.q)
	}
	f.audit(qs)
}

// pause waits, for tests about time itself.
func pause(d time.Duration) { <-time.After(d) }
