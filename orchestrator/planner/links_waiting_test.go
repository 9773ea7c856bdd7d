package planner

import (
	"testing"

	"tandem/internal/replica"
)

// An engine counts requests whose blocks are on their way among those that wait. Over a slow link there is
// always one, and the link is to be learned all the same; whoever waits for its turn is not to be taken for
// the link.
func TestSlowLinkIsLearnedWhileOthersTransfersAreUnderWay(t *testing.T) {
	const link = 1e9 // of which the configuration says 40
	for _, c := range []struct {
		name              string
		waiting, fetching int
		learned           bool
	}{
		{"the engine tells who fetches", 1, 1, true},
		{"the engine does not tell", 1, -1, true},
		{"one waits for its turn", 2, 1, false},
		{"one waits for its turn, and the engine does not tell who fetches", 2, -1, false},
		{"it has not begun to fetch", 1, 0, false},
	} {
		f := newFleet(1, 1, nil)
		before := f.asks(t, 8000)
		asked := f.now
		for range 40 {
			for range 2 {
				f.decode.Observe("d1", replica.Load{
					At: f.now, Source: replica.Metrics, Waiting: c.waiting, Loading: c.fetching, Fetching: c.fetching,
				}, f.now)
			}
			next := f.asks(t, 8000)
			f.now = f.landed(before, asked, 0.005+f.over(link, 8000))
			f.pl.FirstToken(before, f.now)
			before.Release(f.now)
			before, asked = next, f.now
		}
		got := f.pl.LinkSpeeds()[0]
		if learned := got.BytesPerSecond/link < 3; learned != c.learned || (got.Samples > 1) != c.learned {
			t.Errorf("%s: after 40 transfers the link is taken for %.1f GB/s, of %d samples; want it learned: %v",
				c.name, got.BytesPerSecond/1e9, got.Samples, c.learned)
		}
	}
}

// Two engines behind one host name are taken to be linked by 100 GB/s. Where it is 1 GB/s (NIXL over TCP, no
// NVLink, one address in front of several machines) that is to be learned from transfers.
func TestSlowLinkOfOneHostIsLearned(t *testing.T) {
	const link = 1e9
	f := newFleet(1, 1, func(r *replica.Replica) { r.Place = replica.Place{Host: "h"} })
	for range 100 {
		b := f.asks(t, 20000)
		f.come(b, f.landed(b, f.now, 0.005+f.over(link, 20000)))
	}
	if got := f.pl.LinkSpeeds()[0]; got.BytesPerSecond/link > 1.5 {
		t.Errorf("after 100 transfers at 1 GB/s the link is taken for %.1f GB/s, of %d samples",
			got.BytesPerSecond/1e9, got.Samples)
	}
}
