//go:build linux && envoy

package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// way is how clients reach the engines.
type way struct {
	name  string
	front string
	first []time.Duration // medians of the time to the first event of a stream
	whole []time.Duration // medians of the time of an answer that is not streamed
}

// The latency that the gateway with the picker adds, compared with Tandem as the proxy, both in front of
// the same engines without latency. The ways alternate with each request. docs/gateway.md has the table.
func TestGatewayLatency(t *testing.T) {
	f := newGateway(t, setting{engines: []string{"--zero-latency", "--max-model-len", "60000"}})
	proxy := start(t, "proxy", "serve", "--config", f.file())
	line := strings.Fields(strings.ReplaceAll(proxy.line("tandem serves on "), ",", ""))
	untilOK(t, f.asker, "http://"+line[len(line)-1]+"/readyz", 10*time.Second)
	ways := []*way{
		{name: "one engine, asked directly", front: f.fleet.decode[0].url},
		{name: "Tandem, two engines", front: "http://" + line[3]},
		{name: "Envoy, tandem epp, sidecar, two engines", front: f.front},
	}
	w := newWriter(7)
	for _, c := range []struct{ tokens, asks int }{{500, 100}, {40000, 10}} {
		for range rounds {
			f.compare(ways, c.asks, func() question { return w.completion(w.ids(c.tokens), 8) })
		}
		t.Logf("prompts of %d token ids: medians of %d runs of %d requests each", c.tokens, rounds, c.asks)
		for _, by := range ways {
			t.Logf("%-42s first event %v, whole answer %v", by.name, median(by.first), median(by.whole))
			by.first, by.whole = nil, nil
		}
	}
	f.quiet(2 * time.Second)
}

const rounds = 5

// compare asks all ways in turn, and adds the medians of one run.
func (f *gatewayFleet) compare(ways []*way, asks int, next func() question) {
	f.t.Helper()
	first, whole := make([][]time.Duration, len(ways)), make([][]time.Duration, len(ways))
	for range asks {
		for i, by := range ways {
			began := time.Now()
			at := time.Duration(0)
			got := ask(f.t.Context(), f.client, by.front, next().streamed(), func(*reply) {
				if at == 0 {
					at = time.Since(began)
				}
			})
			first[i] = append(first[i], at)
			began = time.Now()
			other := ask(f.t.Context(), f.client, by.front, next(), nil)
			whole[i] = append(whole[i], time.Since(began))
			if got.status != 200 || other.status != 200 {
				f.t.Fatalf("%s: %+v, %+v", by.name, got, other)
			}
		}
	}
	for i, by := range ways {
		by.first, by.whole = append(by.first, median(first[i])), append(by.whole, median(whole[i]))
	}
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2].Round(10 * time.Microsecond)
}
