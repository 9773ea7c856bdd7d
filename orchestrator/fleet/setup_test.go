package fleet

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/setup"
)

// Two engines with different tokenizers have joined, and a third engine has answered but not joined. Until
// the third engine joins, the odd engine of the first two is unknown, and nothing is reported.
func TestEnginesAreComparedWhenAllHaveJoined(t *testing.T) {
	var log bytes.Buffer
	cfg := config.Default()
	for _, url := range []string{"http://p0:1", "http://p1:1", "http://p2:1"} {
		cfg.Pools.Prefill.Replicas = append(cfg.Pools.Prefill.Replicas, config.Replica{URL: url})
	}
	third := make(chan struct{})
	meanwhile := func() {}
	f, _ := fleetOf(t, cfg, &log, func() { meanwhile() })
	all := f.Watchers()
	joins := func(n int, tokens uint64) {
		facts := replica.Facts{Model: "m", Models: []string{"m"}}
		facts.Tokens[0] = tokens
		if err := all[n].accept([]replica.Facts{facts}); err != nil {
			t.Error(err)
		}
	}
	joins(0, 1)
	meanwhile = func() { // the fleet's mutex is held: the third one gets as far as it can
		meanwhile = func() {}
		go func() {
			defer close(third)
			joins(2, 1)
		}()
		for !all[2].Up() {
			time.Sleep(time.Millisecond)
		}
	}
	joins(1, 2)
	<-third
	for n, want := range []bool{false, true, false} {
		id := all[n].Members()[0].ID
		if got := all[n].HasState(id, setup.OtherTokenizer); got != want {
			t.Errorf("%s is odd: %t, want %t", id, got, want)
		}
	}
	if n := strings.Count(log.String(), "is not set up for this router"); n != 1 {
		t.Errorf("%d warnings, want one:\n%s", n, log.String())
	}
}

// With a thousand engines and ten changes per second, a change must not compare each engine with every other
// engine if they are equal.
func TestAChangeOfMembersIsCheapInALargeFleet(t *testing.T) {
	var log bytes.Buffer
	cfg := config.Default()
	const n = 100
	for i := range n {
		p, d := fmt.Sprintf("http://p%d:1", i), fmt.Sprintf("http://d%d:1", i)
		cfg.Pools.Prefill.Replicas = append(cfg.Pools.Prefill.Replicas, config.Replica{URL: p})
		cfg.Pools.Decode.Replicas = append(cfg.Pools.Decode.Replicas, config.Replica{URL: d})
	}
	f, _ := fleetOf(t, cfg, &log, func() {})
	f.SetSplitting(true)
	for _, w := range f.Watchers() {
		w.facts.set([]replica.Facts{{Model: "m", Models: []string{"m"}}})
	}
	f.publish()
	f.keep.mu.Lock()
	defer f.keep.mu.Unlock()
	if got := testing.AllocsPerRun(3, f.judgeLocked); got > n {
		t.Errorf("%v allocations to judge %d replicas, want at most %d", got, 2*n, n)
	}
}

// A pair of engines that can work together is found again when its partner leaves, and a replica without any
// partner has the state until one arrives. A replica that has not changed keeps its endpoint.
func TestPairsAreJudgedWhenAPartnerComesOrLeaves(t *testing.T) {
	var log bytes.Buffer
	cfg := config.Default()
	cfg.Pools.Prefill.Replicas = []config.Replica{{URL: "http://p0:1"}, {URL: "http://p1:1"}}
	cfg.Pools.Decode.Replicas = []config.Replica{{URL: "http://d0:1"}, {URL: "http://d1:1"}}
	f, _ := fleetOf(t, cfg, &log, func() {})
	f.SetSplitting(true)
	joins := func(url, version string) {
		for _, w := range f.Watchers() {
			if w.URL() == url {
				if err := w.accept([]replica.Facts{{Model: "m", Models: []string{"m"}, Version: version}}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	unpaired := func(want ...replica.ID) {
		t.Helper()
		for id, e := range f.Endpoints() {
			if got := len(e.States(id)) > 0 && slices.ContainsFunc(e.States(id), func(s State) bool {
				return s.State == StateUnpaired
			}); got != slices.Contains(want, id) {
				t.Errorf("%s makes no pair: %t, with %v", id, got, want)
			}
		}
	}
	joins("http://p0:1", "1")
	joins("http://p1:1", "2")
	joins("http://d0:1", "1")
	unpaired() // d1 may fit any
	joins("http://d1:1", "1")
	unpaired("p1:1")
	kept := f.Endpoint("p0:1")
	without := *cfg
	without.Pools.Decode.Replicas = cfg.Pools.Decode.Replicas[1:]
	if err := f.Apply(&without); err != nil {
		t.Fatal(err)
	}
	unpaired("p1:1")
	if f.Endpoint("p0:1") != kept {
		t.Error("a replica that has not changed has another endpoint")
	}
	joins("http://d1:1", "2") // it was restarted with another version
	unpaired("p0:1")
	if err := f.Apply(cfg); err != nil {
		t.Fatal(err)
	}
	unpaired("p0:1") // d0 is another server now: the state waits for its answer
	joins("http://d0:1", "1")
	unpaired()
}
