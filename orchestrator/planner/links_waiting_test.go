package planner

import (
	"testing"

	"github.com/tandem-router/tandem/internal/replica"
)

// An engine counts requests whose blocks are arriving as waiting requests. A slow link always has such a
// request, and must be learned in spite of it. A request that waits for its turn must not count as a slow
// link.
func TestSlowLinkIsLearnedWhileOthersTransfersAreUnderWay(t *testing.T) {
	const link = 1e9 // the configured speed is 40 GB/s
	for _, c := range []struct {
		name              string
		waiting, fetching int
		learned           bool
	}{
		{"the engine tells who fetches", 1, 1, true},
		{"the engine does not tell", 1, -1, false},
		{"one waits for its turn", 2, 1, false},
		{"one waits for its turn, and the engine does not tell who fetches", 2, -1, false},
		{"it has not begun to fetch", 1, 0, false},
	} {
		f := newFleet(1, 1, nil)
		f.says(f.decode, "d1", 8, 0, 0) // it has run 8 at a time
		reports := func() {
			for range 2 {
				f.decode.Observe("d1", replica.Load{
					At: f.now, Source: replica.Metrics, Waiting: c.waiting, Loading: c.fetching, Fetching: c.fetching,
				}, f.now)
			}
		}
		reports()
		before := f.asks(t, 8000)
		asked := f.now
		for range 40 {
			reports()
			next := f.asks(t, 8000)
			f.now = f.landed(before, asked, 0.005+f.over(link, 8000))
			f.pl.FirstToken(before, f.now)
			before.Release(f.now)
			before, asked = next, f.now
		}
		got := f.pl.LinkSpeeds(f.now)[0]
		if learned := got.BytesPerSecond/link < 3; learned != c.learned {
			t.Errorf("%s: after 40 transfers the link is taken for %.1f GB/s, of %d samples; want it learned: %v",
				c.name, got.BytesPerSecond/1e9, got.Samples, c.learned)
		}
	}
}

// Two engines with one host name are assumed to have a link of 100 GB/s. If the link has 1 GB/s (NIXL over
// TCP, no NVLink, or one address in front of several machines), transfers teach this.
func TestSlowLinkOfOneHostIsLearned(t *testing.T) {
	const link = 1e9
	f := newFleet(1, 1, func(r *replica.Replica) { r.Place = replica.Place{Host: "h"} })
	for range 100 {
		b := f.asks(t, 20000)
		f.come(b, f.landed(b, f.now, 0.005+f.over(link, 20000)))
	}
	if got := f.pl.LinkSpeeds(f.now)[0]; got.BytesPerSecond/link > 1.5 {
		t.Errorf("after 100 transfers at 1 GB/s the link is taken for %.1f GB/s, of %d samples",
			got.BytesPerSecond/1e9, got.Samples)
	}
}

// Concurrent transfers share the link. Single transfers show how fast it is.
func TestBlocksThatComeAloneSayWhatALinkIsWorth(t *testing.T) {
	const link = 40e9
	f := newFleet(1, 1, nil)
	for i := range 60 {
		waiting, part := 0, 1.0
		if i%4 > 0 { // three of four come together with two others
			waiting, part = 2, 3
		}
		for range 2 {
			f.decode.Observe("d1", replica.Load{
				At: f.now, Source: replica.Metrics, Waiting: waiting, Loading: waiting, Fetching: waiting,
			}, f.now)
		}
		b := f.asks(t, 8000)
		f.now = f.landed(b, f.now, 0.005+part*f.over(link, 8000))
		f.pl.FirstToken(b, f.now)
		b.Release(f.now)
	}
	if got := f.pl.LinkSpeeds(f.now)[0]; got.BytesPerSecond < link/1.1 {
		t.Errorf("a link of 40 GB/s is taken for %.1f, of %d samples", got.BytesPerSecond/1e9, got.Samples)
	}
}
