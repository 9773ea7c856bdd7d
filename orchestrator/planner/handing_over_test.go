package planner

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
)

// asks plans a new prompt that p1 has computed, and lets a decode replica ask for its blocks.
func (f *fleet) asks(t *testing.T, tokens int, avoid ...replica.ID) *Booking {
	t.Helper()
	r := f.fresh(tokens)
	r.AvoidDecode = avoid
	b := f.plan(t, r)
	b.PrefillLease.Done(0, time.Second, f.now)
	if _, err := f.pl.Rebind(b, r, f.now); err != nil {
		t.Fatal(err)
	}
	return b
}

// come lets the first token of b come at this time, and ends b.
func (f *fleet) come(b *Booking, at time.Time) {
	f.now = at
	f.pl.FirstToken(b, f.now)
	b.Release(f.now)
	for _, d := range f.ds {
		f.says(f.decode, d.ID, 0, 0, 0)
	}
	f.says(f.prefill, "p1", 0, 0, 0)
}

// landed returns the time of b's first token if its blocks, requested at asked, take this number of seconds.
func (f *fleet) landed(b *Booking, asked time.Time, took float64) time.Time {
	return asked.Add(seconds(took + b.DecodeLease.StepTime()))
}

// over returns the seconds to move the KV of tokens over a link of this speed in bytes per second.
func (f *fleet) over(link float64, tokens int) float64 {
	return float64(tokens) * f.pl.policy.KVBytesPerToken / link
}

// nowhere removes the place of a replica, so that its links count as slow until their speed is learned.
func nowhere(r *replica.Replica) { r.Place = replica.Place{} }

// If nearly all prompts have one length, the time of a slow link looks like the fixed time of a handover.
// The rare long prompts show the difference. Other links are not affected.
func TestSlowLinksAreNotTakenForHandingOver(t *testing.T) {
	const link, handing = 12.5e9, 0.005 // the configured speed is 40 GB/s
	for _, oneIn := range []int{20, 10, 5, 3} {
		f := newFleet(1, 2, func(r *replica.Replica) {
			if r.ID == "d2" {
				r.Place = replica.Place{Rack: "r2", Zone: "z1"}
			}
		})
		for i := range 300 {
			tokens := 3000
			if i%oneIn == oneIn-1 {
				tokens = 20000
			}
			b := f.asks(t, tokens, "d2")
			f.come(b, f.landed(b, f.now, handing+f.over(link, tokens)))
			f.pass(time.Second)
		}
		step := estimate.DefaultSpeed().Step(1, 0)
		for _, x := range []struct {
			tokens int
			avoid  replica.ID
			link   float64
		}{{500, "d2", link}, {3000, "d2", link}, {20000, "d2", link}, {500, "d1", 40e9}} {
			r := f.fresh(x.tokens)
			r.AvoidDecode = []replica.ID{x.avoid}
			d, err := f.pl.Explain(r, f.now)
			if err != nil {
				t.Fatal(err)
			}
			got, want := d.Plans[0].Terms.Transfer, 1e3*(step+handing+f.over(x.link, x.tokens))
			if math.Abs(got-want) > max(0.3*want, 8) {
				t.Errorf("one in %d long, %d tokens, not to %s: %.0f ms, want %.0f", oneIn, x.tokens, x.avoid, got, want)
			}
		}
	}
}

// Single and concurrent transfers teach the speed of a link, whatever was believed before.
func TestLinksAreLearnedWhateverTheyWereTakenFor(t *testing.T) {
	for _, link := range []float64{12.5e9, 40e9} {
		for _, atOnce := range []int{1, 2} {
			t.Run(fmt.Sprintf("%.3g GB/s, %d at once", link/1e9, atOnce), func(t *testing.T) {
				newFleet(1, 1, nowhere).learnsLink(t, link, atOnce)
			})
		}
	}
}

func (f *fleet) learnsLink(t *testing.T, link float64, atOnce int) {
	t.Helper()
	for i := range 60 {
		tokens := 2000 + i*5%7*2000
		var sent []*Booking
		for range atOnce {
			sent = append(sent, f.asks(t, tokens))
		}
		if n := len(f.pl.flights.ends[1]["d1"]); n != atOnce {
			t.Fatalf("%d transfers are under way, want %d", n, atOnce)
		}
		asked := f.now
		for n, b := range sent {
			f.come(b, f.landed(b, asked, 0.005+f.over(link, tokens)*float64(n+1)))
		}
		if i < 16 {
			continue
		}
		if got := f.pl.LinkSpeeds(f.now)[0].BytesPerSecond / link; got < 0.6 || got > 1.6 {
			t.Fatalf("after %d: %.2f times as fast as it is", i+1, got)
		}
	}
}

// A client that leaves just after its request was sent causes no transfer of blocks.
func TestWhoHasLeftBringsNoBlocks(t *testing.T) {
	f := newFleet(1, 1, nil)
	for range 50 {
		f.asks(t, 20000).Release(f.now)
	}
	if n := len(f.pl.flights.ends[0]) + len(f.pl.flights.ends[1]); n != 0 {
		t.Errorf("transfers are under way at %d replicas, and nobody waits for one", n)
	}
}
