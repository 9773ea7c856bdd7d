package observe

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/planner"
	"github.com/tandem-router/tandem/orchestrator/policy"
	"github.com/tandem-router/tandem/prefill"
)

// However many pairs have been measured, 256 have a series, and those that are farthest from what is
// configured are among them. /debug/replicas has all of them.
func TestLinksAreShown(t *testing.T) {
	o := &State{}
	o.Prefill, o.Decode = prefill.New(prefill.Options{}), decode.New(decode.Options{})
	o.Planner = planner.New(o.Prefill, o.Decode, policy.Default(), rand.New(rand.NewPCG(1, 1)))
	l := &planner.Learned{At: time.Now()}
	var sides [2][]replica.Replica
	for i := range 40 {
		side := i % 2
		r := replica.Replica{
			ID: replica.ID(fmt.Sprintf("r%d", i)), Role: [2]replica.Role{replica.Prefill, replica.Decode}[side],
			URL: fmt.Sprintf("http://r%d", i), Place: replica.Place{Rack: "r"},
		}
		r.Facts.Model, r.Facts.Models = "m", []string{"m"}
		r.Facts.Root, r.Facts.Version = "org/m", "0.32.0"
		r.Facts.BlockSize, r.Facts.Blocks = 16, 1000
		r.Facts.MaxModelLen = 1000
		sides[side] = append(sides[side], r)
	}
	key := func(r *replica.Replica) estimate.EngineKey {
		return estimate.EngineKey{Prefill: r.Role == replica.Prefill, URL: r.URL, Root: "org/m", Version: "0.32.0"}
	}
	for i := range sides[0] {
		for j := range sides[1] {
			x := estimate.PairLink{From: key(&sides[0][i]), To: key(&sides[1][j])}
			x.At, x.PerByte = l.At, 1/40e9
			if i == 19 && j == 19 {
				x.PerByte = 1 / 0.5e9
			}
			l.Links = append(l.Links, x)
		}
	}
	o.Prefill.SetMembers(sides[0], l.At)
	o.Decode.SetMembers(sides[1], l.At)
	for side, all := range sides {
		for _, r := range all {
			if side == 0 {
				o.Prefill.SetHealthy(r.ID, true, "")
			} else {
				o.Decode.SetHealthy(r.ID, true, "")
			}
		}
	}
	if n := o.Planner.RestoreReplicas(l, l.At); n != 400 {
		t.Fatalf("%d links were restored", n)
	}
	_, _ = o.Planner.Explain(&planner.Request{Model: "m", Tokens: 100, SplitOK: true, LocalOK: true}, l.At)
	registry := prometheus.NewRegistry()
	registry.MustRegister(linksOnly{o})
	families, err := registry.Gather()
	if err != nil || len(families) != 2 {
		t.Fatalf("%d families, %v", len(families), err)
	}
	pairs, slow := 0, false
	for _, m := range families[0].GetMetric() {
		pairs++
		slow = slow || math.Abs(m.GetGauge().GetValue()/0.5e9-1) < 0.2
	}
	if kinds := len(families[1].GetMetric()); pairs != linksShown || kinds != int(replica.Links) {
		t.Errorf("%d pairs and %d kinds have series, want %d and %d", pairs, kinds, linksShown, replica.Links)
	}
	if !slow {
		t.Error("the pair that differs most is not among them")
	}
	all := o.Links(l.At)
	if last := all[len(all)-1]; len(all) != 400 || all[0].Kind != "rack" || last.Samples == 0 {
		t.Errorf("%d links, the last %+v", len(all), last)
	}
}

// linksOnly collects what is told of links.
type linksOnly struct{ o *State }

func (l linksOnly) Describe(ch chan<- *prometheus.Desc) {
	ch <- descLink
	ch <- descKind
}

func (l linksOnly) Collect(ch chan<- prometheus.Metric) {
	(&collector{state: l.o}).links(emit(ch), time.Now())
}
