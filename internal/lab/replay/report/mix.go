package report

import (
	"html/template"

	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// figures are the charts of one class.
type figures struct {
	cluster.Class
	First, Tokens template.HTML
}

// classes draws, for each class, the distributions of its answers' times, as multiples of its goals.
func (p *Page) classes(runs []Run) (all []figures) {
	if p.Mix == nil {
		return nil
	}
	for i := range p.Mix.Classes {
		c := &p.Mix.Classes[i]
		of := func(name string, times func(*cluster.Record) float64) template.HTML {
			return p.spread(runs, name, func(r *cluster.Record) (float64, bool) {
				x := times(r)
				return x, p.Mix.Class(r.Session) == c && x > 0
			}).svg()
		}
		all = append(all, figures{
			Class: *c,
			First: of("time to first token / goal",
				func(r *cluster.Record) float64 { return r.TTFT.Seconds() / c.TTFT.Seconds() }),
			Tokens: of("time per output token / goal",
				func(r *cluster.Record) float64 { return r.TPOT() / c.TPOT.Seconds() }),
		})
	}
	return all
}

// tenants draws the p99 of TTFT of each tenant.
func (p *Page) tenants(runs []Run) *chart {
	c := &chart{xName: "tenant", yName: "time to first token, p99, s"}
	for i := range runs {
		l := line{name: runs[i].Outcome.Policy, colour: p.Colour(i), dots: true}
		for j, x := range runs[i].Outcome.Tenants {
			l.points = append(l.points, point{float64(j), x.TTFT.P99})
		}
		c.lines = append(c.lines, l)
	}
	return c
}
