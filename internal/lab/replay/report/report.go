// Package report draws the results of plays as one page of HTML without other files.
package report

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// Run is one play of the trace with one policy.
type Run struct {
	Scale   float64 // of the load, as [replay.Play.Scale]
	Outcome replay.Outcome
	Records []cluster.Record
}

// Page is the contents of a report. All runs play the same trace on the same cluster.
type Page struct {
	Title  string
	About  []Fact // what was played, in order
	Runs   []Run  // the policies in their order on the page
	Scale  float64
	Warm   time.Duration // the distributions leave earlier requests out
	SLO    replay.SLO
	Mix    *cluster.Mix // the classes and tenants of requests; nil: none
	Pools  [2]int       // replicas by side
	Length time.Duration
}

// Fact is a line about the play.
type Fact struct{ Name, Value string }

//go:embed page.html
var layout string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"ms": func(s float64) string { return fmt.Sprintf("%.1f", s*1e3) },
	"s":  func(s float64) string { return fmt.Sprintf("%.3g", s) },
	"pc": func(x float64) string { return fmt.Sprintf("%.1f", x*100) },
	"x":  func(x float64) string { return fmt.Sprintf("%.2f", x) },
}).Parse(layout))

// Write draws the page.
func (p *Page) Write(w io.Writer) error {
	main := p.at(p.Scale)
	view := struct {
		*Page
		Main      []Run
		Colours   []string
		TTFT      template.HTML
		TPOT      template.HTML
		Gap       template.HTML
		Load      template.HTML
		Balance   template.HTML
		Classes   []figures
		Tenants   template.HTML
		Timelines []timeline
	}{Page: p, Main: main, Colours: colours, Timelines: p.timelines(main)}
	view.TTFT = p.spread(main, "time to first token, s",
		func(r *cluster.Record) (float64, bool) { return r.TTFT.Seconds(), true }).svg()
	view.TPOT = p.spread(main, "time per output token, s",
		func(r *cluster.Record) (float64, bool) { return r.TPOT(), r.Output > 1 }).svg()
	view.Gap = p.spread(main, "longest gap between two tokens, s",
		func(r *cluster.Record) (float64, bool) { return r.Gap.Seconds(), r.Output > 1 }).svg()
	view.Classes, view.Tenants = p.classes(main), p.tenants(main).svg()
	view.Load, view.Balance = p.goodput().svg(), p.balance(main).svg()
	return page.Execute(w, view)
}

// at are the runs at one load.
func (p *Page) at(scale float64) []Run {
	return slices.DeleteFunc(slices.Clone(p.Runs), func(r Run) bool { return r.Scale != scale })
}

// Colour returns the colour of the i-th policy.
func (p *Page) Colour(i int) string { return colours[i%len(colours)] }

// counted are the requests after the warm-up.
func (p *Page) counted(r *Run) []*cluster.Record {
	var all []*cluster.Record
	for i := range r.Records {
		if x := &r.Records[i]; x.At >= p.Warm && !x.Refused && !x.Failed {
			all = append(all, x)
		}
	}
	return all
}

// spread is a cumulative distribution of each run, over a logarithmic axis.
func (p *Page) spread(runs []Run, name string, value func(*cluster.Record) (float64, bool)) *chart {
	c := &chart{xName: name, yName: "share of requests", logX: true, yMax: 1, percentY: true}
	for i := range runs {
		var xs []float64
		for _, x := range p.counted(&runs[i]) {
			if v, ok := value(x); ok && v > 0 {
				xs = append(xs, v)
			}
		}
		c.lines = append(c.lines, line{name: runs[i].Outcome.Policy, colour: p.Colour(i), points: cumulative(xs)})
	}
	return c
}

// cumulativeSteps is the number of points of a distribution. Its last hundredth has as many points as the
// rest.
const cumulativeSteps = 100

func cumulative(xs []float64) (points []point) {
	slices.Sort(xs)
	if len(xs) == 0 {
		return nil
	}
	for i := range 2*cumulativeSteps + 1 {
		share := float64(i) / cumulativeSteps * 0.99
		if i > cumulativeSteps {
			share = 0.99 + float64(i-cumulativeSteps)/cumulativeSteps*0.01
		}
		points = append(points, point{xs[min(int(share*float64(len(xs))), len(xs)-1)], share})
	}
	return points
}

// goodput draws the rate of good requests against the rate of all requests, for each policy. It draws nothing
// for a single load.
func (p *Page) goodput() *chart {
	c := &chart{xName: "requests a second", yName: "within the SLO, requests a second"}
	for i, first := range p.at(p.Scale) {
		l := line{name: first.Outcome.Policy, colour: p.Colour(i), dots: true}
		for _, r := range p.Runs {
			if r.Outcome.Policy != first.Outcome.Policy || len(r.Records) == 0 {
				continue
			}
			from := replay.WarmUp(r.Records)
			last := slices.MaxFunc(r.Records, func(a, b cluster.Record) int { return cmp.Compare(a.At, b.At) }).At
			rate := float64(r.Outcome.Measured) / max((last-from).Seconds(), 1)
			l.points = append(l.points, point{rate, rate * r.Outcome.Good})
		}
		slices.SortFunc(l.points, func(a, b point) int { return cmp.Compare(a.x, b.x) })
		if len(l.points) > 1 {
			c.lines = append(c.lines, l)
		}
	}
	return c
}

// balance draws the share of cached tokens against the imbalance of the prefill replicas.
func (p *Page) balance(runs []Run) *chart {
	c := &chart{
		xName: "busiest prefill replica over the mean", yName: "prompt tokens found in a cache", percentY: true,
		named: true,
	}
	for i, r := range runs {
		c.lines = append(c.lines, line{
			name: r.Outcome.Policy, colour: p.Colour(i), dots: true,
			points: []point{{r.Outcome.Balance[cluster.Prefill], r.Outcome.Hit}},
		})
	}
	return c
}
