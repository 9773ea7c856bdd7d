package fleet

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/replica"
)

// One of a thousand replicas leaves, and another joins. The servers of the fleet get no requests: their facts
// come from the benchmark.
func BenchmarkAChangeOfAThousandReplicas(b *testing.B) {
	facts := replica.Facts{
		Model: "m", Models: []string{"m"}, Root: "/m", Version: "0.32.0", BlockSize: 16, Blocks: 10_000,
		CacheDType: "auto", Connector: "nixl", PrefixCaching: true, Tokens: [4]uint64{1, 2, 3, 4}, Started: 1,
	}
	var log bytes.Buffer
	cfg := config.Default()
	const n = 500
	for i := range n {
		p, d := fmt.Sprintf("http://10.0.0.%d:8000", i), fmt.Sprintf("http://10.0.1.%d:8000", i)
		cfg.Pools.Prefill.Replicas = append(cfg.Pools.Prefill.Replicas, config.Replica{URL: p})
		cfg.Pools.Decode.Replicas = append(cfg.Pools.Decode.Replicas, config.Replica{URL: d})
	}
	f, _ := fleetOf(b, cfg, &log, func() {})
	f.SetSplitting(true)
	for _, w := range f.Watchers() {
		w.facts.set([]replica.Facts{facts})
		w.relief.joining = true
	}
	f.publish()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		log.Reset()
		at := i % n
		without := *cfg
		without.Pools.Prefill.Replicas = slices.Delete(slices.Clone(cfg.Pools.Prefill.Replicas), at, at+1)
		for _, c := range []*config.Config{&without, cfg} {
			if err := f.Apply(c); err != nil {
				b.Fatal(err)
			}
		}
		w := f.keep.watched(serverKey{replica.Prefill, cfg.Pools.Prefill.Replicas[at].URL})
		if err := w.accept([]replica.Facts{facts}); err != nil {
			b.Fatal(err)
		}
	}
}
