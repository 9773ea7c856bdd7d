// Command links shows how wrong bandwidths are learned. Simulated fleets have links of the speed -link,
// routers are configured with other bandwidths, and engines post descriptors as measured on a GPU. The
// command prints a table, with the prompts that were split while the mean estimate was off by over a factor
// of two. It draws the estimates over time as an SVG file.
//
//	go run ./tools/links -svg docs/img/links.svg
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/internal/lab/replay/policies"
)

// told lists the factors of the configured over the real speed of links, with the colour of each line.
var told = []struct {
	times  float64
	colour string
}{{100, "#c0392b"}, {10, "#e67e22"}, {1, "#333333"}, {0.1, "#2980b9"}, {0.01, "#8e44ad"}}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "links:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	svg := flag.String("svg", "", "`file` for the picture; none if empty")
	play := replay.Play{
		Profile: "70b", Links: "shared", Host: "posting", SLO: replay.Usual, Policies: []string{"tandem"},
		EventLag: 100 * time.Millisecond, Poll: time.Second, Traces: "examples/traces",
	}
	flag.Float64Var(&play.Link, "link", 4, "real bandwidth of links in GB/s")
	flag.StringVar(&play.Cluster, "cluster", "4P4D", "prefill and decode `replicas`")
	flag.Float64Var(&play.Scale, "scale", 0.7, "load")
	flag.DurationVar(&play.For, "for", 2*time.Minute, "virtual `time`")
	flag.Uint64Var(&play.Seed, "seed", 1, "of everything drawn")
	kind := flag.String("kind", "conversation-late", "`kind` of traffic")
	flag.Parse()
	if play, err = play.OfKind(*kind); err != nil {
		return err
	}
	var plot strings.Builder
	fmt.Println("told      splits  after the third transfer: off by over 2  " +
		"estimate then     good    first token")
	for i, x := range told {
		p := play
		p.Misstated.Links = x.times
		line, err := row(p)
		if err != nil {
			return err
		}
		draw(&plot, i, line, p.For.Seconds(), play.Link)
	}
	if *svg == "" {
		return nil
	}
	f, err := os.Create(*svg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = io.WriteString(f, frame(plot.String(), play))
	return err
}

// row plays p, prints its row, and returns the learned bandwidth of its links in each second, in GB/s.
func row(p replay.Play) (line []float64, err error) {
	p.Watch = func(at time.Duration, r cluster.Router) {
		sum, n := 0.0, 0.0
		for _, l := range r.(*policies.Tandem).LinkSpeeds(cluster.Time(at)) {
			sum += math.Log(l.BytesPerSecond / 1e9)
			n++
		}
		if n == 0 {
			sum, n = math.Log(p.Link*p.Misstated.Links), 1
		}
		line = append(line, math.Exp(sum/n))
	}
	o, all, err := p.Once(context.Background(), "tandem")
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(r cluster.Record) bool { return r.Refused || r.Failed || r.Prefill < 0 })
	slices.SortFunc(all, func(a, b cluster.Record) int { return int(a.At + a.TTFT - b.At - b.TTFT) })
	third := time.Duration(0)
	if len(all) >= 3 {
		third = all[2].At + all[2].TTFT
	}
	wrong, behind := 0, 0
	for _, r := range all {
		if r.At < third {
			continue
		}
		behind++
		off := line[min(int((r.At+r.Waited).Seconds()), len(line)-1)] / p.Link
		if off > 2 || off < 0.5 {
			wrong++
		}
	}
	after := min(int(third.Seconds())+2, len(line)-1)
	fmt.Printf("x %-6g %7d %25d of %4d %18.2f GB/s %7.1f %% %9.2f s\n",
		p.Misstated.Links, len(all), wrong, behind,
		line[after], 100*o.Usual, o.TTFT.Mean)
	return line, nil
}

// Sizes of the picture in pixels. Its values are from low to high GB/s.
const (
	left, right = 60.0, 560.0
	top, bottom = 30.0, 330.0
	low, high   = 0.03, 500.0
)

func y(gb float64) float64 {
	return bottom - (bottom-top)*math.Log(min(max(gb, low), high)/low)/math.Log(high/low)
}

// draw adds the line of one play.
func draw(w io.Writer, i int, line []float64, until, link float64) {
	x := func(s float64) float64 { return left + (right-left)*s/until }
	fmt.Fprintf(w, `<polyline fill="none" stroke-width="2" stroke="%s" points="%.1f,%.1f`, told[i].colour, left,
		y(link*told[i].times))
	for s, gb := range line {
		if float64(s) <= until {
			fmt.Fprintf(w, " %.1f,%.1f", x(float64(s)), y(gb))
		}
	}
	fmt.Fprintf(w, `"/><text x="%g" y="%g" fill="%s">told %g GB/s</text>`+"\n",
		right+12, top+20*float64(i)+10, told[i].colour, link*told[i].times)
}

// frame is the picture around the lines.
func frame(lines string, p replay.Play) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 700 380" width="700" `+
		`font-family="sans-serif" font-size="12" role="img" aria-label="what links are taken for over time">`+"\n")
	fmt.Fprintf(&b, `<rect width="700" height="380" fill="#fff"/><text x="%g" y="18">`+
		"What links of %g GB/s are taken for (%s, %s, GB/s)</text>\n", left, p.Link, p.Kind, p.Cluster)
	for _, gb := range []float64{0.1, 1, 10, 100} {
		fmt.Fprintf(&b, `<path d="M%g %.1fH%g" stroke="#ddd"/><text x="%g" y="%.1f" `+
			`text-anchor="end">%g</text>`+"\n",
			left, y(gb), right, left-6, y(gb)+4, gb)
	}
	for s := 0.0; s <= p.For.Seconds(); s += 20 {
		fmt.Fprintf(&b, `<text x="%.1f" y="%g" text-anchor="middle">%g s</text>`+"\n",
			left+(right-left)*s/p.For.Seconds(), bottom+18, s)
	}
	fmt.Fprintf(&b, `<path d="M%g %.1fH%g" stroke="#27ae60" stroke-dasharray="6 4"/>`+"\n",
		left, y(p.Link), right)
	b.WriteString(lines)
	fmt.Fprintf(&b, `<text x="%g" y="%g" fill="#27ae60">real: %g GB/s</text></svg>`+"\n",
		right+12, top+130, p.Link)
	return b.String()
}
