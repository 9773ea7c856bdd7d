package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// twoRuns has two policies at one load, and the first policy at another load.
func twoRuns() *Page {
	p := &Page{
		Title: "a <title>", Scale: 1, Warm: 10_058_061_744, Length: 100 * time.Second, Pools: [2]int{2, 1},
		About: []Fact{{"trace", "x.jsonl"}},
	}
	for i, name := range []string{"tandem", "round-robin", "tandem"} {
		run := Run{
			Scale:   []float64{1, 1, 0.5}[i],
			Outcome: replay.Outcome{Policy: name, Measured: 9, Good: 0.5, Hit: 0.25, Balance: [2]float64{1.2, 1}},
		}
		for j := range 10 {
			run.Records = append(run.Records, cluster.Record{
				At: time.Duration(j) * 10 * time.Second, TTFT: time.Duration(j+1) * time.Second,
				Total: 5*time.Second + time.Duration(j+1)*time.Second, Output: 11,
				Prefill: j % 2, Refused: j == 3,
			})
		}
		p.Runs = append(p.Runs, run)
	}
	return p
}

// The page is well formed, names every policy once in its table, escapes its input, and loads nothing from
// elsewhere.
func TestPage(t *testing.T) {
	var out bytes.Buffer
	if err := twoRuns().Write(&out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, want := range []string{
		"a &lt;title&gt;", "x.jsonl", "Goodput over load", "time to first token", "gap p99, s",
		"<rect", "polyline", "p1 at ",
		"The first 10.1s count", `height="35"`, // height for two replicas
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not on the page", want)
		}
	}
	if n := strings.Count(text, "</i>tandem</td>"); n != 1 {
		t.Errorf("the table has the policy %d times, want once: at the main load", n)
	}
	for _, bad := range []string{"http", "src=", "url(", "NaN", "Inf", "ZgotmplZ"} {
		if strings.Contains(text, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	for part := range strings.SplitSeq(text, "<svg") {
		if end := strings.Index(part, "</svg>"); end >= 0 {
			wellFormed(t, "<svg"+part[:end+len("</svg>")])
		}
	}
}

func wellFormed(t *testing.T, svg string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v in %.80s", err, svg)
		}
	}
}

// A play without records still gives a page.
func TestEmptyPage(t *testing.T) {
	var out bytes.Buffer
	p := &Page{Scale: 1, Runs: []Run{{Scale: 1, Outcome: replay.Outcome{Policy: "nobody"}}}}
	if err := p.Write(&out); err != nil || !strings.Contains(out.String(), "nobody") {
		t.Errorf("%v: %s", err, out.String())
	}
}

func TestCumulative(t *testing.T) {
	var xs []float64
	for i := range 1000 {
		xs = append(xs, float64(999-i))
	}
	points := cumulative(xs)
	at := func(share float64) float64 {
		for _, p := range points {
			if p.y >= share-1e-9 {
				return p.x
			}
		}
		return -1
	}
	if first, last := points[0], points[len(points)-1]; first.x != 0 || last.x != 999 || last.y != 1 {
		t.Errorf("from %v to %v", first, last)
	}
	if got := at(0.99); got != 990 {
		t.Errorf("p99 is %v, want 990", got)
	}
	if got := at(0.4950); math.Abs(got-495) > 1 {
		t.Errorf("p49.5 is %v, want 495", got)
	}
	if cumulative(nil) != nil {
		t.Error("an empty list has points")
	}
}

// A request counts at its prefill replica from its placement until its blocks have moved, and at its
// decode replica from its first token.
func TestGrid(t *testing.T) {
	p := &Page{Length: 240 * time.Second, Pools: [2]int{2, 2}}
	r := &Run{Records: []cluster.Record{
		{
			At: 10 * time.Second, Waited: time.Second, TTFT: 4500 * time.Millisecond, Transfer: time.Second,
			Total: 8 * time.Second, Prefill: 1, Decode: 0,
		},
		{At: 12 * time.Second, TTFT: time.Second, Total: 2 * time.Second, Prefill: -1, Decode: 0},
		{At: 13 * time.Second, Refused: true},
	}}
	for side, want := range map[cluster.Side]map[string]float64{
		cluster.Prefill: {"1/11": 1, "1/12": 1, "1/13": 0.5},
		cluster.Decode:  {"0/13": 1, "0/14": 0.5, "0/15": 1, "0/16": 1, "0/17": 1},
	} {
		for i, row := range p.grid(r, side) {
			for s, n := range row {
				if w := want[fmt.Sprintf("%d/%d", i, s)]; math.Abs(n-w) > 1e-9 {
					t.Errorf("side %d, replica %d, second %d: %v requests, want %v", side, i, s, n, w)
				}
			}
		}
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		s    scale
		want string
	}{
		{scale{low: 0, high: 1}, "[0 0.2 0.4 0.6 0.8 1]"},
		{scale{low: 0, high: 3.3}, "[0 1 2 3]"},
		{scale{low: 0.02, high: 30, log: true}, "[0.1 1 10]"},
		{scale{low: 0.04, high: 0.3, log: true}, "[0.05 0.1 0.2]"},
	} {
		var got []string
		for _, v := range c.s.ticks() {
			got = append(got, number(v))
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%v to %v: %v, want %v", c.s.low, c.s.high, got, c.want)
		}
	}
}
