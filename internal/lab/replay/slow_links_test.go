package replay

import (
	"testing"
	"time"
)

// Many short prompts arrive over slow links. Blocks on their way must not fill the decode replicas:
// otherwise fewer prompts are computed there, and even more blocks have to move.
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
