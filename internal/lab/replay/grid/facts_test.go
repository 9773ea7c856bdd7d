package grid

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// Tandem plays with every misstatement, and each rival plays with the misstatements that concern it. The
// result has the best rivals, and keeps plays with different facts apart.
func TestFactsAreTold(t *testing.T) {
	f := Fleet{Ground{Kind: "extract-bursts", Shape: "2P2D", Cache: 1, Step: 8192}, 8, 5}
	heard := map[string][]string{}
	o := Options{Link: f.Link, Links: "shared", Requests: 100}
	p, err := NewPlayer(&f.Ground, o)
	if err != nil {
		t.Fatal(err)
	}
	p.simulate = func(_ context.Context, x *replay.Play, form string) (*Played, error) {
		if x.Link != 8 || x.Scale != 5 || x.Cluster != "2P2D" {
			t.Errorf("the lab played %+v", x)
		}
		heard[form] = append(heard[form], said(&x.Misstated))
		good := 0.5
		if form == knowing[1] || form == carefree[2] {
			good = 0.6
		}
		return &Played{Figures: Figures{Policy: form, Usual: good}}, nil
	}
	got, err := p.Facts(t.Context(), &f)
	if err != nil {
		t.Fatal(err)
	}
	if got.Fleet != "extract-bursts/2P2D/cache1/step8192/link8" || got.Model != "links=shared" ||
		got.Load != 5 || len(got.Told) != len(Misstatements) {
		t.Errorf("%+v", got)
	}
	for i, x := range got.Told {
		if x.Misstate != Misstatements[i] || x.Ours.Policy != ours || x.Knowing.Policy != knowing[1] ||
			x.Careless.Policy != carefree[2] {
			t.Errorf("%+v", x)
		}
	}
	const silent = "ids=none routers=4"
	for form, want := range map[string]string{
		ours:        " links=10 links=0.1 speed=2 speed=0.5 " + silent + " routers=4@1s",
		knowing[0]:  " links=10 links=0.1 speed=2 speed=0.5 " + silent,
		carefree[0]: " " + silent,
	} {
		if all := strings.Join(heard[form], " "); all != want {
			t.Errorf("%s is played with %q, want %q", form, all, want)
		}
	}
}

// said returns the entry of [Misstatements] that a play has.
func said(m *cluster.Misstated) string {
	for _, text := range Misstatements {
		if x, err := cluster.ParseMisstated(text); err == nil && x == *m {
			return text
		}
	}
	return "?"
}

// Rivals that do not use the speed of links and engines play the same when this speed is wrong. Rivals
// that use it play differently.
func TestWhoGoesBySpeeds(t *testing.T) {
	play := func(form, misstate string) string {
		p, err := replay.Play{
			Cluster: "2P2D", Scale: 3, For: 30 * time.Second, EventLag: 100 * time.Millisecond, Poll: time.Second,
			Link: 4,
		}.OfKind("answers300-long-some-bursts")
		if err != nil {
			t.Fatal(err)
		}
		if p.Misstated, err = cluster.ParseMisstated(misstate); err != nil {
			t.Fatal(err)
		}
		o, _, err := p.Once(t.Context(), form)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(o.End, o.TTFT.Mean)
	}
	for _, misstate := range []string{"links=0.01", "speed=0.1"} {
		for _, form := range carefree {
			if careless(misstate) != "" || play(form, misstate) != play(form, "") {
				t.Errorf("%s: %s makes a difference", form, misstate)
			}
		}
		for _, form := range knowing {
			if play(form, misstate) == play(form, "") {
				t.Errorf("%s: %s makes no difference", form, misstate)
			}
		}
	}
	if got := careless("links=10,ids=none,speed=2"); got != "ids=none" {
		t.Errorf("the remaining misstatements are %q", got)
	}
}

// Tandem is compared with its play with true facts, with the rivals under the same misstatement, or with
// both. Misses are in bold.
func TestFactsTable(t *testing.T) {
	told := func(misstate string, ours, ttft, knowing, careless float64) Told {
		return Told{
			misstate,
			Figures{Usual: ours, TTFT: ttft},
			Figures{Usual: knowing, TTFT: 2},
			Figures{Usual: careless, TTFT: 3},
		}
	}
	all := []Facts{{Fleet: "x/2P2D", Load: 1.234, Told: []Told{
		told("", 0.95, 1, 0.96, 0.95),
		told("links=10", 0.93, 1.2, 0.99, 0.94),
		told("links=0.1", 0.95, 1.21, 0.9, 0.9),
		told("speed=2", 0.925, 1, 0.9, 0.9),
		told("speed=0.5", 0.94, 5, 0.9, 0.956),
		told("ids=none", 0.5, 9, 0.4, 0.505),
		told("routers=4", 0.5, 9, 0.52, 0.5),
		told("routers=4@1s", 0.94, 1.16, 0.9, 0.9),
	}}}
	var text bytes.Buffer
	if err := PrintFacts(&text, all); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| fleet, load | true facts | links=10 | links=0.1 | speed=2 | speed=0.5 | ids=none " +
			"| routers=4 | routers=4@1s |",
		"| x/2P2D, 1.23 | 95.0, 1.00 | 93.0, 1.20 | **95.0, 1.21** | **92.5, 1.00** | **94.0, 5.00** " +
			"| 50.0, 9.00 | **50.0, 9.00** | **94.0, 1.16** |",
		"| x/2P2D, 1.23 | 96.0, 2.00; 95.0, 3.00 | 99.0, 2.00; 94.0, 3.00 |",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &text)
		}
	}
}
