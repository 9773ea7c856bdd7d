package replay

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// Wrong facts that routers are given change decisions, but not the fleet itself. A policy that does not
// use the wrong fact plays as before.
func TestMisstatedFactsReachDecisions(t *testing.T) {
	base := Play{
		Trace: file(t, 200), Cluster: "2P2D", Profile: "8b", Seed: 3, Scale: 20, EventLag: 50 * time.Millisecond,
		Host: "measured", Policies: []string{"tandem", "kv-aware+local:k=2", "round-robin"},
	}
	truth, err := base.Run(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for text, blind := range map[string][3]bool{ // whether the decisions of each policy change
		"links=0.0001": {true, true, false},
		"speed=0.01":   {true, false, false}, // a ratio of times does not change
		"ids=none":     {true, true, false},
		"length=3":     {true, true, false},
		"index=none":   {true, true, false},
		"routers=4":    {true, true, true},
		"routers=4@1s": {true, true, true},
	} {
		p := base
		if p.Misstated, err = cluster.ParseMisstated(text); err != nil {
			t.Fatal(err)
		}
		out, err := p.Run(t.Context(), nil)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for i, o := range out {
			if o.Requests != 200 || o.Refused+o.Failed > 0 {
				t.Errorf("%s, %s: %d requests, %d refused, %d failed", text, o.Policy, o.Requests, o.Refused, o.Failed)
			}
			if changed := o.TTFT != truth[i].TTFT; changed != blind[i] {
				t.Errorf("%s, %s: TTFT %+v, and %+v without", text, o.Policy, o.TTFT, truth[i].TTFT)
			}
		}
	}
}
