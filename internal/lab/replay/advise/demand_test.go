package advise

import (
	"cmp"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/internal/lab/replay/policies"
	"github.com/tandem-router/tandem/orchestrator/observe"
)

// A router's measurement of its own traffic (tandem_demand_replicas) names a shape. That shape is as good
// as the shape that advise finds by playing the same traffic in every shape. The rules of
// deploy/prometheus/scale.yml and the autoscalers of deploy/kubernetes use the same shares of busy time.
func TestDemandNamesTheShapeOfAdvise(t *testing.T) {
	const replicas, asGood = 4, 0.8
	for _, c := range []struct {
		kind  string
		scale float64
		shape string // the best shape that advise must find; the traffics want different shapes
	}{
		{"extract-bursts", 48, "3P1D"},
		{"answers300-long-some-bursts", 8, ""}, // two shapes are equally good
		{"answers300-short-most-bursts", 60, "1P3D"},
	} {
		t.Run(c.kind, func(t *testing.T) {
			t.Parallel()
			p, err := replay.Play{
				Links: "shared", Host: "measured", Profile: "h100-llama-8b-1", Scale: c.scale, For: 30 * time.Second,
			}.OfKind(c.kind)
			if err != nil {
				t.Fatal(err)
			}
			prefill := shapeOf(t, p, replicas)
			a, err := Ask(t.Context(), &Question{Play: p, Replicas: replicas, Goals: Goals()[:1], Enough: 0.9})
			if err != nil {
				t.Fatal(err)
			}
			best := a.Shapes[a.Verdicts[0].Best]
			if c.shape != "" && best.Name != c.shape {
				t.Errorf("advise finds %s, want %s", best.Name, c.shape)
			}
			for _, s := range a.Shapes {
				t.Logf("%s holds %.2f", s.Name, s.Holds[0].Load)
				if s.Prefill == prefill && s.Holds[0].Load < asGood*best.Holds[0].Load {
					t.Errorf("the demand names %s with a capacity of %.2f; %s has %.2f",
						s.Name, s.Holds[0].Load, best.Name, best.Holds[0].Load)
				}
			}
		})
	}
}

// shapeOf returns how many of the replicas should prefill. The router of an evenly split fleet measures
// this demand.
func shapeOf(t *testing.T, p replay.Play, replicas int) int {
	t.Helper()
	const busyPrefill, busyDecode = 0.7, 0.5
	p.Cluster = cluster.ShapeOf(replicas/2, replicas)
	_, answers, err := p.Once(t.Context(), "tandem") // the next play has the same answers
	if err != nil {
		t.Fatal(err)
	}
	end := func(r cluster.Record) time.Duration { return r.At + r.Total }
	slices.SortFunc(answers, func(a, b cluster.Record) int { return cmp.Compare(end(a), end(b)) })
	prefill, decode := 0.0, 0.0
	var meter observe.Demand
	p.Watch = func(at time.Duration, router cluster.Router) {
		for ; len(answers) > 0 && end(answers[0]) <= at; answers = answers[1:] {
			meter.Ended(answers[0].Prompt, answers[0].Output, 1, cluster.Time(end(answers[0])))
		}
		if at > p.For/3 && at <= p.For {
			inputs, decoders := router.(*policies.Tandem).Pools()
			now := cluster.Time(at)
			prompts, outputs := meter.Pools(
				inputs.Status(now), decoders.Status(now), decoders.PeerLoads(now), now,
			)
			prefill += prompts / busyPrefill
			decode += outputs / busyDecode
		}
	}
	if _, _, err := p.Once(t.Context(), "tandem"); err != nil {
		t.Fatal(err)
	}
	share := prefill / (prefill + decode)
	t.Logf("share of prefill: %.2f", share)
	return min(max(int(math.Round(share*float64(replicas))), 1), replicas-1)
}
