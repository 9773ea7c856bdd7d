package replay

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// A tenant asks for ten times its share, and for more than the fleet can do. Where shares are kept, the other
// tenants wait for less than half as long as where the router tells no tenants apart, and less than a tenth
// as many of their requests are refused. One play is not enough: shares refuse a request in some plays.
func TestSharesProtectTheOtherTenants(t *testing.T) {
	var waits [2]float64 // sums of the others' p99
	var refused [2]int
	for seed := range uint64(3) {
		p := Play{
			Trace: "../../../examples/traces/mooncake_conversation.jsonl.gz", Cluster: "1P2D", Scale: 0.84,
			For: 10 * time.Minute, Policies: []string{"tandem", "tandem-unclassed"}, Seed: seed + 1,
			Mix: &cluster.Mix{Tenants: []float64{10. / 14, 1. / 14, 1. / 14, 1. / 14, 1. / 14}},
		}
		all, err := p.Run(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, o := range all {
			for _, tenant := range o.Tenants[1:] {
				waits[i] += tenant.TTFT.P99
				refused[i] += tenant.Refused
			}
		}
	}
	if kept, none := waits[0], waits[1]; kept > none/2 {
		t.Errorf("p99 of the others are %.0f s in sum with shares and %.0f s without", kept, none)
	}
	if kept, none := refused[0], refused[1]; none == 0 || kept >= none/10 {
		t.Errorf("%d requests of the others are refused with shares and %d without", kept, none)
	}
}

// Tenants that ask for little hardly wait in the router while another tenant floods the fleet, although they
// ask for several things at once now and then.
func TestModestTenantsHardlyWait(t *testing.T) {
	var waits []float64
	for seed := range uint64(3) {
		p, err := Play{
			Cluster: "1P2D", Scale: 16.8, For: time.Minute, Seed: seed + 1,
			Mix: &cluster.Mix{Tenants: []float64{10. / 14, 1. / 14, 1. / 14, 1. / 14, 1. / 14}},
		}.OfKind("answers28-2000-none-poisson")
		if err != nil {
			t.Fatal(err)
		}
		_, records, err := p.Once(t.Context(), "tandem")
		if err != nil {
			t.Fatal(err)
		}
		for i := range records {
			if p.Mix.Tenant(records[i].Session) > 0 {
				waits = append(waits, records[i].Waited.Seconds())
			}
		}
	}
	if slowest := quantiles(waits).P99; slowest > 0.5 {
		t.Errorf("one of a hundred waits for %v s", slowest)
	}
}
