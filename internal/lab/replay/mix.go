package replay

import (
	"bufio"
	"fmt"
	"strconv"

	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// Part is the result for the requests of one class or tenant, after the warm-up.
type Part struct {
	Name     string    `json:"name"`
	Measured int       `json:"measured"`
	Refused  int       `json:"refused"`
	Good     float64   `json:"good"` // share that kept the goals of their class
	TTFT     Quantiles `json:"ttft_s"`
	TPOT     Quantiles `json:"tpot_s"`
}

// parts fills in the results of each class and tenant.
func (p *Play) parts(o *Outcome, measured []*cluster.Record) {
	if p.Mix == nil {
		return
	}
	part := func(name string, is func(*cluster.Record) bool) Part {
		var t tally
		for _, x := range measured {
			if is(x) {
				t.add(x, p.goal(x))
			}
		}
		var sum Outcome
		t.into(&sum)
		return Part{name, sum.Measured, sum.Refused, sum.Good, sum.TTFT, sum.TPOT}
	}
	for i := range p.Mix.Classes {
		c := &p.Mix.Classes[i]
		o.Classes = append(o.Classes,
			part(c.Name, func(x *cluster.Record) bool { return p.Mix.Class(x.Session) == c }))
	}
	if len(p.Mix.Tenants) < 2 {
		return
	}
	for i := range p.Mix.Tenants {
		o.Tenants = append(o.Tenants,
			part("tenant "+strconv.Itoa(i), func(x *cluster.Record) bool { return p.Mix.Tenant(x.Session) == i }))
	}
}

// printParts writes a line for each class and tenant of each policy.
func printParts(out *bufio.Writer, all []Outcome, width int) {
	for i := range all {
		for _, parts := range [][]Part{all[i].Classes, all[i].Tenants} {
			for _, x := range parts {
				fmt.Fprintf(out, "%-*s %-14s good %5.1f %%, TTFT s p50/p90/p99 %.3g/%.3g/%.3g, "+
					"TPOT ms p50/p99 %.1f/%.1f, refused %d of %d\n",
					width, all[i].Policy, x.Name, x.Good*100, x.TTFT.P50, x.TTFT.P90, x.TTFT.P99,
					x.TPOT.P50*1e3, x.TPOT.P99*1e3, x.Refused, x.Measured)
			}
		}
	}
}
