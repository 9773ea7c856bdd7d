package planner

import (
	"errors"
	"testing"
	"time"

	"tandem/internal/replica"
	"tandem/scoring"
)

// idle reports that nobody has anything to do.
func (f *fleet) idle() {
	for i := range f.ps {
		f.says(f.prefill, f.ps[i].ID, 0, 0, 0)
	}
	for i := range f.ds {
		f.says(f.decode, f.ds[i].ID, 0, 0, 0)
	}
}

// A cached prefix is worth what it was however many bursts of short prompts have been answered.
func TestBurstsLeaveACachedPrefixItsWorth(t *testing.T) {
	f := newFleet(2, 1, nil)
	f.store(t, f.prefill, "p1", 1, 500)
	long := func() replica.ID {
		r := f.request(1, 30_000)
		r.LocalOK = false
		d, err := f.pl.Explain(r, f.now)
		if err != nil {
			t.Fatal(err)
		}
		return d.Prefill
	}
	for i := range 100 {
		if to := long(); to != "p1" {
			t.Fatalf("behind %d bursts a prompt of 30,000 tokens goes to %s, 8,000 of them are on p1", i, to)
		}
		f.burst(t, i, 16)
	}
}

// burst has so many short prompts answered, those of each engine out of one step.
func (f *fleet) burst(t *testing.T, seed, size int) {
	t.Helper()
	of := map[replica.ID][]*Booking{}
	for j := range size {
		r := f.request(uint32(100+size*seed+j), 32)
		r.LocalOK = false
		b := f.plan(t, r)
		of[b.Prefill.ID] = append(of[b.Prefill.ID], b)
	}
	for _, bookings := range of {
		at := f.now.Add(seconds(scoring.DefaultSpeed().Prefill(32*len(bookings), 0)))
		for _, b := range bookings {
			at = at.Add(20 * time.Microsecond)
			f.pl.PrefillDone(b, 0, at.Sub(f.now), at)
			b.Release(at)
		}
	}
	f.pass(time.Second)
	f.idle()
}

// learnsSlow has three prompts of so many tokens each take so long on p1, the only one that was measured.
func (f *fleet) learnsSlow(t *testing.T, tokens int, took time.Duration) {
	t.Helper()
	for i := range 3 {
		r := f.request(uint32(100+i), tokens)
		r.LocalOK, r.AvoidPrefill = false, []replica.ID{"p2"}
		b := f.plan(t, r)
		f.pass(took)
		f.pl.PrefillDone(b, 0, took, f.now)
		b.Release(f.now)
		f.pass(time.Second)
	}
}

// With a limit for the first token, what made engines look slow for a moment does not keep requests out for good: now and then one is let through to tell.
func TestLateIsNotForEver(t *testing.T) {
	for name, tokens := range map[string]int{"short prompts were slow": 32, "long prompts were slow": 8000} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(2, 1, nil)
			f.learnsSlow(t, tokens, 20*time.Second)
			f.pl.SetPolicy(Policy{FirstToken: 5 * time.Second})
			var last time.Duration
			refused := 0
			for i := range 600 {
				r := f.request(uint32(1000+i), 8000)
				r.LocalOK = false
				b, err := f.pl.Plan(r, f.now)
				if err != nil {
					if _, late := errors.AsType[*TooLate](err); !late {
						t.Fatal(err)
					}
					refused++
					last = time.Duration(i) * time.Second
				} else {
					f.pl.PrefillDone(b, 0, seconds(scoring.DefaultSpeed().Prefill(8000, 0)), f.now.Add(seconds(scoring.DefaultSpeed().Prefill(8000, 0))))
					b.Release(f.now)
				}
				f.pass(time.Second)
				f.idle()
			}
			if last > 90*time.Second {
				t.Errorf("engines as fast as ever: %d requests were refused, the last one after %v", refused, last)
			}
		})
	}
}

// An engine that is slow for good is not tried with all requests: one in ten seconds on each tells that it still is.
func TestLateIsTriedByOne(t *testing.T) {
	f := newFleet(2, 1, nil)
	f.learnsSlow(t, 8000, 20*time.Second)
	f.pl.SetPolicy(Policy{FirstToken: 5 * time.Second})
	through := 0
	for i := range 300 {
		r := f.request(uint32(1000+i), 8000)
		r.LocalOK = false
		if b, err := f.pl.Plan(r, f.now); err == nil {
			through++
			f.pl.PrefillDone(b, 0, 20*time.Second, f.now)
			b.Release(f.now)
		}
		f.pass(time.Second)
		f.idle()
	}
	if through < 10 || through > 60 {
		t.Errorf("%d of 300 requests in 300 s went through to two replicas, want one in ten seconds for each", through)
	}
}
