package report

import (
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// timeline has the numbers of requests at each replica over time, for one run.
type timeline struct {
	Policy  string
	Prefill template.HTML
	Decode  template.HTML
}

// slots is the number of intervals into which the time is divided.
const slots = 240

// timelines draws all runs on the same scale, so that they can be compared. Each pool has its own picture.
func (p *Page) timelines(runs []Run) []timeline {
	grids := make([][2][][]float64, len(runs))
	var most [2]float64
	for i := range runs {
		for side := range grids[i] {
			grids[i][side] = p.grid(&runs[i], cluster.Side(side))
			for _, row := range grids[i][side] {
				for _, n := range row {
					most[side] = max(most[side], n)
				}
			}
		}
	}
	var all []timeline
	for i := range runs {
		all = append(all, timeline{
			Policy:  runs[i].Outcome.Policy,
			Prefill: p.strip(grids[i][cluster.Prefill], most[cluster.Prefill], cluster.Prefill),
			Decode:  p.strip(grids[i][cluster.Decode], most[cluster.Decode], cluster.Decode),
		})
	}
	return all
}

// grid is the mean number of requests at each replica of a side in each slot: one row per replica.
func (p *Page) grid(r *Run, side cluster.Side) [][]float64 {
	rows := make([][]float64, p.Pools[side])
	for i := range rows {
		rows[i] = make([]float64, slots)
	}
	slot := p.Length / slots
	for i := range r.Records {
		x := &r.Records[i]
		at := x.Decode
		from := x.At + x.TTFT
		to := x.At + x.Total
		if side == cluster.Prefill {
			at = x.Prefill
			from = x.At + x.Waited
			to = x.At + x.TTFT - x.Transfer
		}
		if x.Refused || x.Failed || at < 0 || at >= len(rows) || slot <= 0 {
			continue
		}
		for s := max(0, int(from/slot)); s < slots && time.Duration(s)*slot < to; s++ {
			begin, end := max(from, time.Duration(s)*slot), min(to, time.Duration(s+1)*slot)
			rows[at][s] += float64(max(0, end-begin)) / float64(slot)
		}
	}
	return rows
}

// strip draws a grid: the darker, the more requests.
func (p *Page) strip(rows [][]float64, most float64, side cluster.Side) template.HTML {
	const cell, left = 3, 28
	high := max(9, 72/max(1, len(rows))) // rows of a small fleet are higher
	var b strings.Builder
	fmt.Fprintf(&b,
		`<svg class="strip" viewBox="0 0 %d %d" role="img" aria-label="requests at each replica over the time">`,
		left+slots*cell+40, len(rows)*high+16)
	for i, row := range rows {
		fmt.Fprintf(&b, `<text x="%d" y="%d" class="tick" text-anchor="end">%s</text>`,
			left-4, i*high+high/2+4, cluster.ID(side, i))
		for s, n := range row {
			if n > 0.005*most {
				fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" fill-opacity="%.2f"><title>%s at %s: %.1f `+
					`requests</title></rect>`,
					left+s*cell, i*high, cell, high-
						1, max(0.06, n/most), cluster.ID(side, i), (time.Duration(s) * p.Length / slots).Round(time.Second), n)
			}
		}
	}
	for _, part := range []int{0, 1, 2, 3, 4} {
		fmt.Fprintf(&b, `<text x="%d" y="%d" class="tick" text-anchor="middle">%s</text>`,
			left+part*slots*cell/4, len(rows)*high+12, (time.Duration(part) * p.Length / 4).Round(time.Second))
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // numbers and names of our own
}
