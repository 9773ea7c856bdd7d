package planner

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/roster"
)

// drained drains the replicas for which is returns true, and undrains all others.
func (f *fleet) drained(is func(replica.ID) bool) {
	for _, rs := range [][]replica.Replica{f.ps, f.ds} {
		for i := range rs {
			rs[i].Draining = is(rs[i].ID)
		}
	}
	f.prefill.SetMembers(f.ps, f.now)
	f.decode.SetMembers(f.ds, f.now)
}

// No plan uses a drained replica, and no request is refused that another replica could serve. Earlier
// bookings stay. Between its legs, a request leaves a drained decode replica for any other replica that can
// take it, and stays if there is none. After the drain the replica is used as before.
func TestNothingNewGoesToAReplicaThatIsDrained(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pick := func(what string, most int) int { return rapid.IntRange(0, most).Draw(t, what) }
		f := newFleet(1+pick("prefills", 3), 1+pick("decodes", 3), nil)
		out := map[replica.ID]bool{}
		var booked []*Booking
		for range 30 {
			f.pass(time.Duration(pick("pause", 200)) * time.Millisecond)
			switch pick("what", 4) {
			case 0, 1:
				for _, rs := range [][]replica.Replica{f.ps, f.ds} {
					for i := range rs {
						out[rs[i].ID] = pick("drained", 2) == 0
					}
				}
				f.drained(func(id replica.ID) bool { return out[id] })
			case 2, 3:
				r := f.request(uint32(1+pick("prompt", 3)), 100+400*pick("tokens", 10))
				r.LocalOK = pick("local", 1) == 0
				booked = f.planBeside(t, booked, r, out)
			case 4:
				booked = f.handOver(t, booked, out)
			}
		}
		for _, b := range booked {
			b.Release(f.now)
		}
		for _, r := range f.ps {
			if n := f.prefill.Booked(r.ID); n != 0 {
				t.Fatalf("%d leases of %s are left", n, r.ID)
			}
		}
		for _, r := range f.ds {
			if n := f.decode.Booked(r.ID); n != 0 {
				t.Fatalf("%d leases of %s are left", n, r.ID)
			}
		}
	})
}

// used is the number of replicas in rs that are not excluded.
func used(rs []replica.Replica, out map[replica.ID]bool) (n int) {
	for i := range rs {
		if !out[rs[i].ID] {
			n++
		}
	}
	return n
}

func (f *fleet) planBeside(t *rapid.T, booked []*Booking, r *Request, out map[replica.ID]bool) []*Booking {
	b, err := f.pl.Plan(r, f.now)
	possible := used(f.ds, out) > 0 && (r.LocalOK || used(f.ps, out) > 0)
	none, _ := errors.AsType[*NoReplica](err)
	switch {
	case err != nil && none == nil:
		t.Fatalf("there is room: %v", err)
	case (err == nil) != possible:
		t.Fatalf("planned: %v, with %v drained", err, out)
	case none != nil && !none.Draining:
		t.Fatalf("it is not said that a replica is drained: %v", none)
	case err != nil:
		return booked
	case out[b.Decode.ID] || b.Mode == Split && out[b.Prefill.ID]:
		t.Fatalf("a plan with %s and %s, with %v drained", b.Prefill.ID, b.Decode.ID, out)
	}
	return append(booked, b)
}

func (f *fleet) handOver(t *rapid.T, booked []*Booking, out map[replica.ID]bool) []*Booking {
	if len(booked) == 0 {
		return nil
	}
	b := booked[0]
	if b.Mode == Split {
		b.PrefillLease.Done(0, 10*time.Millisecond, f.now)
		was := b.Decode.ID
		_, err := f.pl.Rebind(b, f.request(1, 500), f.now)
		switch {
		case err != nil:
			t.Fatalf("a request that was booked is refused: %v, with %v drained", err, out)
		case out[b.Decode.ID] && used(f.ds, out) > 0:
			t.Fatalf("it stays on %s, with %v drained", b.Decode.ID, out)
		case out[was] && used(f.ds, out) == 0 && b.Decode.ID != was:
			t.Fatalf("it moves from %s to %s, which is drained too", was, b.Decode.ID)
		}
	}
	b.Release(f.now)
	return booked[1:]
}

// A replica whose drain began while a plan was made is not booked, in either pool.
func TestADrainComesBetweenChoosingAndBooking(t *testing.T) {
	f := newFleet(1, 1, nil)
	q := f.pl.ask(f.request(1, 2000), f.now)
	defer q.over()
	if !f.pl.evaluate(q, f.now) {
		t.Fatal("no plan")
	}
	f.drained(func(replica.ID) bool { return true })
	if f.prefill.Book(&f.pl.comparison.prefills[0], f.now) != nil {
		t.Error("the prefill replica was booked")
	}
	if b, err := f.pl.choose(q, f.now); b != nil {
		t.Errorf("a plan with %s, error %v", b.Decode.ID, err)
	}
	for _, e := range f.pl.refusal.all(q, f.now) {
		if e.Reason != roster.Draining {
			t.Errorf("%s is left out because %q", e.Replica, e.Reason)
		}
	}
}
