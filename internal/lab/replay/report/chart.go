package report

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strconv"
	"strings"
)

// point is a place in a chart, in the units of its axes.
type point struct{ x, y float64 }

// line is one policy in a chart: points in order, joined.
type line struct {
	name, colour string
	points       []point
	dots         bool // the points are marked
}

// chart is a drawing with two axes.
type chart struct {
	xName, yName string
	logX         bool
	yMax         float64 // 0: as high as the highest point
	percentY     bool
	named        bool // each line's name stands beside its last point
	lines        []line
}

// colours are the colours of policies. Most people with weak colour vision can distinguish them too.
var colours = []string{
	"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#8c564b", "#bcbd22", "#17becf",
	"#9467bd", "#2ca02c",
}

// The size of a chart and of the margins around its plot.
const (
	wide, high  = 560.0, 330.0
	left, right = 56.0, 14.0
	top, bottom = 10.0, 44.0
)

// scale maps values to places.
type scale struct {
	low, high float64
	from, to  float64
	log       bool
}

func (s scale) at(v float64) float64 {
	a, b := s.low, s.high
	if s.log {
		v = math.Log10(v)
		a = math.Log10(a)
		b = math.Log10(b)
	}
	return s.from + (v-a)/(b-a)*(s.to-s.from)
}

// svg draws c. It returns nothing if there is nothing to draw.
func (c *chart) svg() template.HTML {
	x, y, ok := c.scales()
	if !ok {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="chart" viewBox="0 0 %g %g" role="img" aria-label="%s over %s">`,
		wide, high, html.EscapeString(c.yName), html.EscapeString(c.xName))
	c.axes(&b, x, y)
	for _, l := range c.lines {
		l.draw(&b, x, y, c.named)
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // names are escaped, the rest is numbers
}

// scales fits the axes to the points. It returns false without points.
func (c *chart) scales() (x, y scale, ok bool) {
	x = scale{math.Inf(1), math.Inf(-1), left, wide - right, c.logX}
	y = scale{0, c.yMax, high - bottom, top, false}
	for _, l := range c.lines {
		for _, p := range l.points {
			x.low = min(x.low, p.x)
			x.high = max(x.high, p.x)
			ok = true
			if c.yMax == 0 {
				y.high = max(y.high, p.y*1.1)
			}
		}
	}
	switch {
	case !ok:
		return x, y, false
	case c.logX:
		x.low, x.high = max(x.low, 1e-4), max(x.high, x.low*1.1, 1e-3)
	case c.named:
		x.low, x.high = 1, max(x.high*1.15, 1.2) // a maximum over its mean
	default:
		x.low = 0
	}
	if y.high <= 0 {
		y.high = 1
	}
	return x, y, true
}

// axes draws the frame, the grid and the names of the axes.
func (c *chart) axes(b *strings.Builder, x, y scale) {
	for _, v := range x.ticks() {
		fmt.Fprintf(b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%g" y2="%g"/><text class="tick" x="%.1f" `+
			`y="%g" text-anchor="middle">%s</text>`,
			x.at(v), x.at(v), top, high-bottom, x.at(v), high-bottom+14, number(v))
	}
	for _, v := range y.ticks() {
		label := number(v)
		if c.percentY {
			label = number(v*100) + " %"
		}
		fmt.Fprintf(b, `<line class="grid" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/><text class="tick" x="%g" `+
			`y="%.1f" text-anchor="end">%s</text>`,
			left, wide-right, y.at(v), y.at(v), left-5, y.at(v)+3, label)
	}
	fmt.Fprintf(b, `<text class="axis" x="%g" y="%g" text-anchor="middle">%s</text>`,
		(left+wide-right)/2, high-8, html.EscapeString(c.xName))
	fmt.Fprintf(b, `<text class="axis" transform="translate(13 %g) rotate(-90)" text-anchor="middle">%s</text>`,
		(top+high-bottom)/2, html.EscapeString(c.yName))
}

func (l *line) draw(b *strings.Builder, x, y scale, named bool) {
	if len(l.points) == 0 {
		return
	}
	fmt.Fprintf(b, `<g stroke="%s" fill="%s"><title>%s</title>`, l.colour, l.colour, html.EscapeString(l.name))
	if len(l.points) > 1 {
		b.WriteString(`<polyline fill="none" stroke-width="1.8" points="`)
		for _, p := range l.points {
			fmt.Fprintf(b, "%.1f,%.1f ", x.at(max(p.x, x.low)), y.at(p.y))
		}
		b.WriteString(`"/>`)
	}
	last := l.points[len(l.points)-1]
	if l.dots {
		for _, p := range l.points {
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3.5"/>`, x.at(p.x), y.at(p.y))
		}
	}
	if named {
		fmt.Fprintf(b, `<text class="name" x="%.1f" y="%.1f">%s</text>`,
			x.at(last.x)+6, y.at(last.y)+4, html.EscapeString(l.name))
	}
	b.WriteString("</g>")
}

// ticks are about five round values within the scale.
func (s scale) ticks() (all []float64) {
	if s.log {
		for e := math.Floor(math.Log10(s.low)); e <= math.Ceil(math.Log10(s.high)); e++ {
			for _, m := range []float64{1, 2, 5} {
				if v := m * math.Pow(10, e); v >= s.low*0.999 && v <= s.high*1.001 && (m == 1 || s.high/s.low < 300) {
					all = append(all, v)
				}
			}
		}
		return all
	}
	raw := (s.high - s.low) / 5
	step := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 2.5, 5, 10} {
		if m*step >= raw {
			step *= m
			break
		}
	}
	for v := math.Ceil(s.low/step) * step; v <= s.high+step/1e6; v += step {
		all = append(all, v)
	}
	return all
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }
