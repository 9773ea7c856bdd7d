//go:build linux

package main

import (
	"strings"
	"sync"
	"testing"
)

// For every API and every form of request, two engines together give the same answer as one engine.
func TestAnswersAreExact(t *testing.T) {
	for _, c := range []struct {
		name string
		set  setting
	}{
		{"with render", setting{engines: []string{"--zero-latency", "--enable-scale-out"}}},
		{"without render", setting{engines: []string{"--zero-latency"}}},
		{"where it pays", setting{engines: []string{"--zero-latency", "--enable-scale-out"}, local: "auto"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, c.set)
			asked := shapes()
			for range 2 { // the second time, the whole prompt is cached
				var wg sync.WaitGroup
				turn := make(chan struct{}, 8)
				for _, q := range asked {
					wg.Go(func() {
						turn <- struct{}{}
						defer func() { <-turn }()
						f.check(q)
					})
				}
				wg.Wait()
			}
			for i := range 4 {
				f.converse(uint64(i))
			}
			f.quiet(2e9)
			f.audit(asked)
			f.wantPlaced(c.set.local != "auto")
			if c.set.local != "auto" {
				f.wantOtherAPIs(c.name == "with render")
			}
		})
	}
}

// shapes returns requests of every form.
func shapes() []question {
	w := newWriter(1)
	var out []question
	for _, n := range []int{1, 12} {
		out = append(out,
			w.completion(w.text(), n),
			w.completion(w.sharedIDs(), n),
			w.completion(" a short prompt", n),
			w.completion([]int{300}, n),
			w.completion(w.ids(64), n),  // whole blocks
			w.completion(w.ids(65), n),  // one token more
			w.completion(w.ids(999), n), // long
			w.completion(w.text(), n).with("cache_salt", "tenant"),
			w.completion(w.text(), n).with("stop", []string{" the"}),
			w.completion([]string{w.text(), w.text(), " short", w.text()}, n),
			w.completion([][]int{w.sharedIDs(), w.ids(3), w.sharedIDs(), w.ids(48)}, n),
			w.chat(n, message("user", " please explain the router")),
			w.chat(n, message("system", w.text()), message("user", " what is a lease")),
			w.chat(n, message("system", w.text()), message("user", w.text())).with("max_completion_tokens", n),
			w.completion(w.text(), n).with("n", 2).with("temperature", 0.8).with("seed", 3),
			w.completion(w.text(), n).with("echo", true),
		)
	}
	for _, n := range []int{1, 12} {
		out = append(out, w.otherAPIs(n)...)
	}
	for _, q := range out {
		out = append(out, q.streamed(), q.with("stream", true))
	}
	return out
}

// converse holds a chat of several turns. Each answer becomes part of the next prompt.
func (f *fleet) converse(seed uint64) {
	f.t.Helper()
	w := newWriter(seed + 50)
	messages := []map[string]string{message("system", w.text())}
	for turn := range 5 {
		messages = append(messages, message("user", " "+strings.Join(w.words(20), " ")))
		q := w.chat(16, messages...)
		if turn%2 == 1 {
			q = q.streamed()
		}
		got := f.check(q)
		if len(got.texts) == 0 {
			f.t.Fatalf("no answer to turn %d", turn)
		}
		messages = append(messages, message("assistant", got.texts[0]))
	}
}

// wantPlaced checks that requests were split. With always, every request that can be split must be split.
func (f *fleet) wantPlaced(always bool) {
	f.t.Helper()
	split := f.metric("tandem_decisions_total", `mode="split"`)
	local := f.metric("tandem_decisions_total", `mode="local"`)
	unsplit := f.metric("tandem_decisions_total", `mode="unsplit"`)
	f.t.Logf("placed: %v split, %v local, %v that cannot be split", split, local, unsplit)
	if always && (split < 100 || local > 0) {
		f.t.Error("requests were not split")
	}
	if bad := f.metric("tandem_transfer_params_refused_total"); bad > 0 {
		f.t.Errorf("%v transfer parameters refused", bad)
	}
}
