package planner

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

// Blocks cross a link of 40 GB/s at once, and requests wait for their turn in an engine that runs a few at a
// time. This wait does not count as the time of the link.
func TestWhoWaitsForATurnIsNotTheLink(t *testing.T) {
	for _, c := range []struct {
		name      string
		sequences int // that run at a time
		tells     bool
		fetching  int
		source    replica.LoadSource
	}{
		{"metrics, 4 run", 4, true, -1, replica.Metrics},
		{"metrics, 12 run", 12, true, -1, replica.Metrics},
		{"metrics that tell who fetches, 4 run", 4, true, 0, replica.Metrics},
		{"ORCA alone", 4, false, -1, replica.ORCA},
	} {
		f := newFleet(1, 1, nil)
		var waiting, running []*Booking
		for range 200 { // in each fifth of a second one comes and one ends; three wait
			n := -1
			if c.tells {
				n = len(running)
			}
			for range 2 {
				f.decode.Observe("d1", replica.Load{
					At: f.now, Source: c.source, Running: n, Waiting: len(waiting), Loading: c.fetching,
					Fetching: c.fetching, Usage: 0.3,
				}, f.now)
			}
			r := f.fresh(8000)
			b := f.plan(t, r)
			f.hands(t, b, r)
			waiting = append(waiting, b)
			if len(waiting) == 1 && len(running) < c.sequences { // requests that need not wait have come by now
				f.pass(seconds(0.005 + f.over(40e9, 8000)))
				f.pl.FirstToken(waiting[0], f.now)
				running, waiting = append(running, waiting[0]), nil
			}
			f.pass(200 * time.Millisecond)
			if len(running) == c.sequences && len(waiting) >= 3 {
				running[0].DecodeLease.Finish(100, 2*time.Second, f.now)
				running[0].Release(f.now)
				running = running[1:]
			}
			for len(running) < c.sequences && len(waiting) > 0 {
				f.pl.FirstToken(waiting[0], f.now)
				running, waiting = append(running, waiting[0]), waiting[1:]
			}
		}
		for _, l := range f.pl.LinkSpeeds(f.now) {
			if l.BytesPerSecond < 10e9 {
				t.Errorf("%s: a link of 40 GB/s is taken for %.2f, of %d samples",
					c.name, l.BytesPerSecond/1e9, l.Samples)
			}
		}
	}
}
