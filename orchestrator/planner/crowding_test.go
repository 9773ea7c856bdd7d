package planner

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
)

// crowd sends short prompts to p1 at this rate per second for two minutes. If long is not zero, p2 gets one
// prompt of that length every two seconds. Each prompt is done when the next one comes. At the end some short
// prompts wait on p1.
func (f *fleet) crowd(t *testing.T, rate, short, long, waiting int) {
	t.Helper()
	f.set(Policy{Links: [replica.Links]float64{100e9, 40e9, 4e9, 3e9}})
	seed, gap := uint32(1000), time.Second/time.Duration(rate)
	send := func(tokens int, avoid replica.ID) *Booking {
		r := f.request(seed, tokens)
		seed++
		r.LocalOK, r.MaxTokens = false, 2
		r.AvoidPrefill = []replica.ID{avoid}
		return f.plan(t, r)
	}
	done := func(b *Booking, took time.Duration) {
		b.PrefillLease.Done(0, took, f.now)
		b.Release(f.now)
	}
	for i := range 120 * rate {
		if long > 0 && i%(2*rate) == 0 {
			done(send(long, "p1"), time.Second)
		}
		b := send(short, "p2")
		f.pass(gap)
		done(b, gap)
		if i%rate == 0 {
			f.idle()
		}
	}
	for range waiting {
		send(short, "p2")
	}
	f.idle()
}

// If a queue keeps short prompts away, few short prompts come, and a second of work delays few requests. But
// this must not attract all long prompts.
func TestAQueueThatKeepsOthersAwayIsNoReasonToBecomeLonger(t *testing.T) {
	const long = 32_000
	f := newFleet(2, 1, func(r *replica.Replica) { r.Facts.Blocks = 4_000_000 })
	f.crowd(t, 40, 1100, long, 15)
	each := estimate.DefaultSpeed().Prefill(long, 0)
	for n := uint32(0); ; n++ {
		r := f.request(1+n, long)
		r.LocalOK = false
		b := f.plan(t, r)
		if b.Prefill.ID == "p1" {
			return
		}
		if wait := float64(n) * each; wait > 15 {
			t.Fatalf("a prompt goes behind %.1f s of others on p2, where p1 has a third of a second", wait)
		}
	}
}

// The delay of requests behind a plan does not make two decode replicas equal.
func TestOthersWaitMakesNobodyAsGood(t *testing.T) {
	for name, worse := range map[string]func(f *fleet){
		"far away": func(f *fleet) {},
		"nearly full": func(f *fleet) {
			f.says(f.decode, "d1", 20, 0, 0.30)
			f.says(f.decode, "d2", 20, 0, 0.85)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(1, 2, func(r *replica.Replica) {
				r.Facts.Blocks = 400_000
				if name == "far away" && r.ID == "d2" {
					r.Place = replica.Place{Rack: "r2", Zone: "z1"}
				}
			})
			f.crowd(t, 50, 900, 0, 180)
			worse(f)
			for n := range uint32(100) {
				r := f.request(1+n, 8000)
				r.LocalOK = false
				d, err := f.pl.Explain(r, f.now)
				if err != nil {
					t.Fatal(err)
				}
				if d.Decode == "d2" {
					t.Fatalf("d2 is chosen: %s of %d plans as good", d.Why, d.Ties)
				}
			}
		})
	}
}
