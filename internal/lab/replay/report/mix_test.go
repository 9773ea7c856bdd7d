package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// The page shows the goals of each class, and how long each tenant waits; without a mix it shows neither.
func TestPageOfClassesAndTenants(t *testing.T) {
	draw := func(p *Page) string {
		var out bytes.Buffer
		if err := p.Write(&out); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	const goals, tenants = "fast &lt;1&gt;: 2s, 20ms a token", "p99, s over tenant"
	p := twoRuns()
	if text := draw(p); strings.Contains(text, "Goals of classes") || strings.Contains(text, tenants) {
		t.Error("classes or tenants of nobody")
	}
	p.Mix = &cluster.Mix{
		Classes: []cluster.Class{
			{Name: "fast <1>", TTFT: 2 * time.Second, TPOT: 20 * time.Millisecond},
			{Name: "slow", TTFT: time.Minute, TPOT: time.Second},
		},
		Tenants: []float64{0.5, 0.5},
	}
	for i := range p.Runs {
		first, second := replay.Quantiles{P99: 1}, replay.Quantiles{P99: 7}
		p.Runs[i].Outcome.Tenants = []replay.Part{{TTFT: first}, {TTFT: second}}
		for j := range p.Runs[i].Records {
			p.Runs[i].Records[j].Session = j
		}
	}
	text := draw(p)
	for _, want := range []string{goals, "slow: 1m0s, 1s a token", tenants} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not on the page", want)
		}
	}
	if n := strings.Count(text, "time to first token / goal</text>"); n != 2 {
		t.Errorf("%d charts of first tokens, want one a class", n)
	}
}
