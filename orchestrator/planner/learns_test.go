package planner

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
)

// slowOne is a fleet in which p2 was measured eight times slower at prefilling than the profile, and p1 equal
// to it.
func slowOne(t *testing.T) *fleet {
	t.Helper()
	f := newFleet(2, 1, nil)
	profile := estimate.DefaultSpeed()
	for i := range uint32(12) {
		r := f.request(100+i, 4000)
		r.LocalOK, r.AvoidPrefill = false, []replica.ID{"p1"}
		slower := 8.0
		if i%2 == 0 {
			r.AvoidPrefill, slower = []replica.ID{"p2"}, 1
		}
		b := f.plan(t, r)
		took := time.Duration(slower * profile.Prefill(4000, 0) * float64(time.Second))
		f.pass(took)
		b.PrefillLease.Done(0, took, f.now)
		b.Finish(10, took, took+time.Second, f.now)
	}
	f.pass(5 * time.Second)
	for _, r := range f.ps {
		f.says(f.prefill, r.ID, 0, 0, 0)
	}
	f.says(f.decode, "d1", 0, 0, 0)
	return f
}

// A prefill replica that was measured slow does not get a prompt that is half cached there.
func TestWhatWasLearnedDecides(t *testing.T) {
	f := slowOne(t)
	f.store(t, f.prefill, "p2", 9, 150)
	r := f.request(9, 4000)
	r.LocalOK = false
	if b := f.plan(t, r); b.Prefill.ID != "p1" {
		t.Errorf("%s is chosen, want p1: %s", b.Prefill.ID, b.Decision.Reason)
	}
}

// A decode replica behind a measured slow link gets no request.
func TestSlowLinkIsAvoided(t *testing.T) {
	f := newFleet(1, 2, nil)
	slow := f.ds[0]
	for i := range uint32(40) {
		for range 50 {
			f.teachLink(&f.ps[0], &slow, 10./(1<<30)) // again, because a link that was slow long ago is tried
		}
		r := f.request(300+i, 8000)
		r.LocalOK = false
		b := f.plan(t, r)
		if b.Decode.ID == slow.ID {
			t.Fatalf("request %d goes to %s", i, slow.ID)
		}
		b.Release(f.now)
		f.pass(time.Minute)
		for _, d := range f.ds {
			f.says(f.decode, d.ID, 0, 0, 0)
		}
		f.says(f.prefill, "p1", 0, 0, 0)
	}
}
