package grid

import (
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"
)

// Chart draws every cell as a dot in an SVG file: Tandem's good answers against the best fair rival's, by the
// usual goal and by the tight goal.
func Chart(w io.Writer, lines []Line) error {
	picture := strings.Replace(string(chart(lines)), "<svg", `<svg xmlns="http://www.w3.org/2000/svg"`, 1)
	_, err := io.WriteString(w, picture)
	return err
}

// Sizes of a chart, in pixels.
const (
	panel  = 300.0                     // a side of a plot
	beside = 60.0                      // left of the plot, for the axis
	above  = 34.0                      // over it, for the title
	below  = 78.0                      // under it, for the axis and the key
	across = 2 * (beside + panel + 36) // the whole chart: two plots, with room between
)

// chart returns Chart's picture as a part of a page.
func chart(lines []Line) template.HTML {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" width="%g" font-family="sans-serif" `+
		`font-size="12" role="img" aria-label="ours over the best fair rival, cell by cell">`,
		across, above+panel+below, across)
	fmt.Fprintf(&b, `<rect width="%g" height="%g" fill="#fff"/>`, across, above+panel+below)
	scatter(&b, "Good answers: 5 s, 100 ms, no gap above 1 s", lines, (*Line).Good)
	fmt.Fprintf(&b, `<g transform="translate(%g 0)">`, across/2)
	scatter(&b, "Within the tight goal: 2 s, 30 ms, 0.2 s", lines, (*Line).Tight)
	b.WriteString("</g></svg>\n")
	return template.HTML(b.String()) //nolint:gosec // the whole text is ours, and numbers
}

// scatter draws one plot of a share of answers.
func scatter(b *strings.Builder, title string, lines []Line, share func(*Line, Side) float64) {
	low := 1.0
	for i := range lines {
		l := &lines[i]
		low = min(low, share(l, Ours), share(l, Rival))
	}
	low = min(0.9, math.Floor(low*10)/10)
	x := func(v float64) float64 { return beside + (v-low)/(1-low)*panel }
	y := func(v float64) float64 { return above + panel - (v-low)/(1-low)*panel }
	fmt.Fprintf(b, `<text x="%g" y="20" font-weight="600" fill="#222">%s</text>`, beside, title)
	tick := 0.1
	if low < 0.5 {
		tick = 0.2
	}
	for at := 1.0; at > low-tick/2; at -= tick {
		v := max(at, low)
		fmt.Fprintf(b, `<path d="M%.1f %.1fH%.1fM%.1f %.1fV%.1f" stroke="#e3e6ea"/>`,
			x(low), y(v), x(1), x(v), y(low), y(1))
		label(b, x(low)-6, y(v)+4, "end", "#667", fmt.Sprintf("%.0f %%", v*100))
		label(b, x(v), y(low)+16, "middle", "#667", fmt.Sprintf("%.0f %%", v*100))
	}
	fmt.Fprintf(b, `<path d="M%.1f %.1fL%.1f %.1f" stroke="#99a"/>`, x(low), y(low), x(1), y(1))
	label(b, beside+panel/2, y(low)+34, "middle", "#222", "the best fair rival, same shape")
	fmt.Fprintf(b, `<g transform="translate(%.1f %.1f) rotate(-90)">`, beside-44, above+panel/2)
	label(b, 0, 0, "middle", "#222", "ours")
	b.WriteString("</g>")
	for i := range lines {
		l := &lines[i]
		dot(b, x(share(l, Rival)), y(share(l, Ours)), l.Blind, share(l, Ours) < share(l, Rival)-LossOf)
	}
	for i, key := range []struct {
		name        string
		blind, lost bool
	}{{"open kind", false, false}, {"blind kind", true, false}, {"behind by over a point", false, true}} {
		at := beside + float64(i)*88
		dot(b, at+4, y(low)+54, key.blind, key.lost)
		label(b, at+13, y(low)+58, "start", "#222", key.name)
	}
}

// label writes text that begins, ends or has its middle there.
func label(b *strings.Builder, x, y float64, anchor, colour, text string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s">%s</text>`, x, y, anchor, colour, text)
}

// dot draws one cell: hollow if its kind is blind, red if Tandem is behind.
func dot(b *strings.Builder, x, y float64, blind, lost bool) {
	colour := "#0072b2"
	if lost {
		colour = "#c5221f"
	}
	fill := colour
	if blind {
		fill = "#fff"
	}
	fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="4" fill="%s" fill-opacity="0.75" stroke="%s"/>`,
		x, y, fill, colour)
}
