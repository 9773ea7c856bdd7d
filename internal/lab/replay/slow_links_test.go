package replay

import (
	"testing"
	"time"
)

// Where short prompts come by the hundred over slow links, blocks on their way must not fill the decode
// replicas: what they keep out is what would be computed there, so that still more blocks have to come.
func TestSlowLinksDoNotFillDecodeReplicas(t *testing.T) {
	p, err := Play{
		Cluster: "4P2D", Cache: 1, Profile: "70b", Step: 2048, Host: "measured", Links: "shared", Link: 8,
		Scale: 550,
		For:   10 * time.Second, Seed: 3, Policies: []string{"tandem"}, SLO: Usual,
	}.OfKind("answers4-short-most-poisson")
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.Run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	o := &out[0]
	if o.Good < 0.75 || o.TTFT.Mean > 5 {
		t.Errorf("%.0f %% good answers, first token after %.1f s on average, %.0f GB moved",
			100*o.Good, o.TTFT.Mean, o.Moved)
	}
}
