package fleet

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/setup"
)

// Two engines with different tokenizers have joined, and the third one has answered but has not joined yet.
// Until it has, nobody knows which of the two is odd, and nothing is said.
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

// With a thousand engines and ten changes a second, a change may not compare each engine with each other one
// where they are equal.
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
	if got := testing.AllocsPerRun(3, f.judgePairsLocked); got > n {
		t.Errorf("%v allocations to judge %d replicas, want at most %d", got, 2*n, n)
	}
}
