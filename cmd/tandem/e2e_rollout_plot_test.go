//go:build linux && kubernetes

package main

import (
	"fmt"
	"html"
	"strings"
	"time"
)

// The measures of the plot of rollouts, in pixels: one panel below the other.
const (
	plotLeft, plotRight = 58.0, 640.0
	panelTop, panelHigh = 40.0, 130.0
	panelStep           = 210.0
)

// plot draws, second by second, the time to the first content and the share of cached prompt tokens.
func plot(all []*outcome) string {
	var b strings.Builder
	high := panelStep * float64(len(all))
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 700 %g" width="700" `+
		`font-family="sans-serif" font-size="12" role="img" aria-label="hit ratio and TTFT over rollouts">`+"\n"+
		`<rect width="700" height="%g" fill="#fff"/>`+"\n", high, high)
	for i, o := range all {
		fmt.Fprintf(&b, `<g transform="translate(0 %g)">`+"\n", panelStep*float64(i))
		o.panel(&b)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// panel draws one rollout.
func (o *outcome) panel(b *strings.Builder) {
	begin := o.all[0].began
	seconds := o.all[len(o.all)-1].began.Sub(begin).Seconds()
	x := func(at time.Time) float64 { return plotLeft + (plotRight-plotLeft)*at.Sub(begin).Seconds()/seconds }
	buckets := map[int][]*asked{}
	for _, a := range o.all {
		at := int(a.began.Sub(begin).Seconds())
		buckets[at] = append(buckets[at], a)
	}
	most := max(firsts(o.all)[len(firsts(o.all))-1], time.Millisecond)
	y := func(share float64) float64 { return panelTop + panelHigh*(1-share) }
	text := func(x, y float64, anchor, colour, words string) {
		fmt.Fprintf(b, `<text x="%.0f" y="%.0f" text-anchor="%s" fill="%s">%s</text>`+"\n", x, y, anchor, colour,
			html.EscapeString(words))
	}
	text(plotLeft, 18, "start", "#222", fmt.Sprintf("%s: %d requests, %d failed, %d wrong", o.name, len(o.all),
		o.failed, o.wrong))
	fmt.Fprintf(b, `<rect x="%.1f" y="%g" width="%.1f" height="%g" fill="#f1f3f5"/>`+"\n", x(o.from), panelTop,
		x(o.to)-x(o.from), panelHigh)
	for _, at := range o.marks {
		fmt.Fprintf(b, `<path d="M%.1f %gv6" stroke="#888"/>`+"\n", x(at), panelTop+panelHigh)
	}
	for _, share := range []float64{0, 0.5, 1} {
		fmt.Fprintf(b, `<path d="M%g %gH%g" stroke="#ddd"/>`+"\n", plotLeft, y(share), plotRight)
		ms := share * float64(most.Milliseconds())
		text(plotLeft-6, y(share)+4, "end", "#0072b2", fmt.Sprintf("%.0f ms", ms))
		text(plotRight+6, y(share)+4, "start", "#2a7d2a", fmt.Sprintf("%.0f %%", share*100))
	}
	for s := 0; s <= int(seconds); s += 10 {
		at := begin.Add(time.Duration(s) * time.Second)
		text(x(at), panelTop+panelHigh+20, "middle", "#667", fmt.Sprintf("%d s", s))
	}
	line := func(colour, dash string, value func([]*asked) (float64, bool)) {
		fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="1.5"%s points="`, colour, dash)
		for s := range int(seconds) {
			if v, known := value(buckets[s]); known {
				fmt.Fprintf(b, "%.1f,%.1f ", x(begin.Add(time.Duration(s)*time.Second+time.Second/2)), y(v))
			}
		}
		b.WriteString(`"/>` + "\n")
	}
	share := func(d time.Duration) float64 { return float64(d) / float64(most) }
	at := func(q float64) func([]*asked) (float64, bool) {
		return func(all []*asked) (float64, bool) {
			sorted := firsts(all)
			return share(quantile(sorted, q)), len(sorted) > 0
		}
	}
	line("#9ecae1", "", at(1))
	line("#0072b2", "", at(0.5))
	line("#2a7d2a", ` stroke-dasharray="5 3"`, func(all []*asked) (float64, bool) {
		return hits(all), len(all) > 0
	})
	for i, key := range []struct{ colour, words string }{
		{"#0072b2", "TTFT, median"}, {"#9ecae1", "slowest"}, {"#2a7d2a", "cached prompt tokens"},
	} {
		text(plotRight-360+float64(i)*100, 34, "start", key.colour, key.words)
	}
}
