package replay

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// A request is good by the goals of its own class, and counts for its class and its tenant. A refused request
// counts as not good.
func TestGoodByClass(t *testing.T) {
	p := Play{Mix: &cluster.Mix{
		Classes: []cluster.Class{
			{Name: "fast", TTFT: time.Second, TPOT: 20 * time.Millisecond},
			{Name: "slow", TTFT: time.Minute, TPOT: time.Second},
		},
		Tenants: []float64{0.5, 0.5},
	}}
	r := &cluster.Result{}
	var all, refused [2]int
	for session := range 200 {
		x := cluster.Record{
			At: time.Hour, Session: session, TTFT: 2 * time.Second, Total: 3 * time.Second, Output: 11,
		}
		x.Refused = session%10 == 0
		class := 0
		if p.Mix.Class(session).Name == "slow" {
			class = 1
		}
		all[class]++
		if x.Refused {
			refused[class]++
		}
		r.Records = append(r.Records, x)
	}
	o := p.sum("x", r)
	fast, slow := o.Classes[0], o.Classes[1]
	want := float64(all[1]-refused[1]) / float64(all[1])
	if fast.Name != "fast" || fast.Good != 0 || slow.Good != want || fast.Measured != all[0] ||
		slow.Refused != refused[1] {
		t.Errorf("%+v and %+v", fast, slow)
	}
	if o.Good != float64(all[1]-refused[1])/200 {
		t.Errorf("%v of all are good", o.Good)
	}
	if len(o.Tenants) != 2 || o.Tenants[0].Measured+o.Tenants[1].Measured != 200 || o.Tenants[1].TTFT.P99 != 2 {
		t.Errorf("%+v", o.Tenants)
	}
	var out bytes.Buffer
	if err := PrintOutcomes(&out, []Outcome{*o}); err != nil || strings.Count(out.String(), "\n") != 6 {
		t.Errorf("%v:\n%s", err, out.String())
	}
}

// A tenant that sends ten times its share does not hold up the others. With the shares of the admission
// queue, the slowest first tokens of the others come several times as soon as without shares. The fleet
// answers at most 5 % fewer requests a second than without shares.
func TestATenantDoesNotDelayOthers(t *testing.T) {
	p, err := Play{
		Cluster: "1P1D", Scale: 20, For: 30 * time.Second, Mix: &cluster.Mix{Tenants: []float64{0.8, 0.1, 0.1}},
	}.OfKind("answers28-2000-none-poisson")
	if err != nil {
		t.Fatal(err)
	}
	play := func(policy string) (slowest, perSecond float64) {
		o, _, err := p.Once(t.Context(), policy)
		if err != nil {
			t.Fatal(err)
		}
		return max(o.Tenants[1].TTFT.P99, o.Tenants[2].TTFT.P99), float64(o.Measured-o.Refused) / o.End
	}
	with, kept := play("tandem")
	without, all := play("tandem-unclassed")
	if with > without/4 {
		t.Errorf("the others wait %v s with shares and %v without", with, without)
	}
	if kept < 0.95*all {
		t.Errorf("the fleet answers %v requests a second with shares and %v without", kept, all)
	}
}
