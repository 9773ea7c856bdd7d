//go:build linux

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// fast is an 8B model on an H100, four times as fast.
var fast = []string{"--speed", "8b", "--speed-factor", "4", "--blocks", "4096"}

// A prefill replica is killed under traffic and comes back at its port.
func TestPrefillReplicaDiesAndReturns(t *testing.T) {
	t.Parallel()
	f := newFleet(t, setting{engines: fast})
	l := f.traffic(6, 24)
	l.more(60)
	victim := f.prefill[0]
	f.dies(victim)
	l.more(60) // the others carry on
	f.returns(victim)
	l.more(60)
	l.end()
	f.quiet(f.set.lease + time.Second)
	f.audit(l.asked)
}

// A decode replica is killed in the middle of streams and comes back at its port.
func TestDecodeReplicaDiesAndReturns(t *testing.T) {
	t.Parallel()
	f := newFleet(t, setting{engines: fast})
	l := f.traffic(6, 24)
	l.more(60)
	w := newWriter(99)
	var streams []*running
	for range 10 {
		s := f.begin(w.completion(w.text(), 1500).streamed())
		s.flowing(3)
		streams = append(streams, s)
	}
	victim := f.busiest(f.decode)
	f.dies(victim)
	for _, s := range streams { // a stream whose tokens are known continues on another replica
		if v, why := s.judge(); v != exact {
			t.Errorf("a stream while its engine may have died: %s", why)
		}
	}
	if n := f.metric("tandem_continued_total", `outcome="continued"`); n == 0 {
		t.Error("no stream was on the replica that died")
	} else {
		t.Logf("%.0f of %d streams went on elsewhere", n, len(streams))
	}
	l.more(60)
	f.returns(victim)
	l.more(60)
	l.end()
	f.quiet(f.set.lease + time.Second)
	f.audit(l.asked)
}

// dies kills an engine and waits until /readyz states why the engine is unused.
func (f *fleet) dies(e *engine) {
	f.t.Helper()
	e.kill()
	took := eventually(f.t, patience(3*time.Second), func() error {
		status, h := f.health()
		ready, _, reason := h.of(e.id)
		switch {
		case status != 200 || !h.Ready:
			f.t.Fatalf("not ready with one of two replicas left: %+v", h)
		case ready:
			return fmt.Errorf("%s is said to be ready", e.id)
		case !strings.Contains(reason, "connection refused"):
			return fmt.Errorf("%s is not ready because %q", e.id, reason)
		}
		return nil
	})
	f.t.Logf("/readyz knew of the death of %s after %v", e.id, took.Round(time.Millisecond))
}

// returns starts an engine again and waits until it is ready and serves.
func (f *fleet) returns(e *engine) {
	f.t.Helper()
	e.back()
	began := time.Now()
	eventually(f.t, patience(10*time.Second), func() error {
		_, h := f.health()
		if ready, _, reason := h.of(e.id); !ready {
			return fmt.Errorf("%s is not ready: %s", e.id, reason)
		}
		if f.series(e.url+"/metrics", "vllm:generation_tokens_total") == 0 {
			return fmt.Errorf("%s is not used", e.id)
		}
		return nil
	})
	f.t.Logf("%s was used again %v after its start", e.id, time.Since(began).Round(time.Millisecond))
	eventually(f.t, patience(10*time.Second), func() error {
		if f.metric("tandem_index_trust", `replica="`+e.id+`"`, `state="live"`) != 1 {
			return fmt.Errorf("events of %s are not followed", e.id)
		}
		return nil
	})
}

// busiest returns the engine that runs the most requests.
func (f *fleet) busiest(engines []*engine) *engine {
	f.t.Helper()
	return slices.MaxFunc(engines, func(a, b *engine) int {
		return cmp.Compare(f.series(a.url+"/metrics", "vllm:num_requests_running"),
			f.series(b.url+"/metrics", "vllm:num_requests_running"))
	})
}
