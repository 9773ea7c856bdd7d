package prefill

import (
	"math"
	"testing"
	"time"
)

// Between two reports of another router, its usual share of a replica's time is added to the work of the
// replica. A router that reports each change at once has booked nothing in between.
func TestOtherRoutersGoOnBookingBetweenReports(t *testing.T) {
	p := newPool("p1", "p2")
	told := []PeerLoad{{ID: "p1", Rho: 0.5}, {ID: "p2"}}
	wait := func(now time.Time) (p1, p2 float64) {
		all := p.ask(1000, now)
		return all[0].Wait, all[1].Wait
	}
	p.MergePeer("b", told, start)
	for _, after := range []time.Duration{0, 100 * time.Millisecond, time.Second} {
		p1, p2 := wait(start.Add(after))
		if want := 0.5 * after.Seconds(); math.Abs(p1-want) > 1e-9 || p2 != 0 {
			t.Errorf("after %v: %g and %g s to wait, want %g and 0", after, p1, p2, want)
		}
	}
	p.MergePeer("c", []PeerLoad{{ID: "p2"}}, start.Add(time.Second)) // the mean of both is half a second old
	if p1, _ := wait(start.Add(time.Second)); math.Abs(p1-0.25) > 1e-9 {
		t.Errorf("beside a router that has just reported: %g s to wait, want 0.25", p1)
	}
	p.MergePeer("c", nil, start)
	p.UpdatePeer("b", told[:1], start)
	if p1, _ := wait(start.Add(time.Second)); p1 != 0 {
		t.Errorf("beside a router that reports at once: %g s to wait, want 0", p1)
	}
	p.MergePeer("b", told, start)
	if p1, _ := wait(start.Add(time.Second)); p1 != 0 {
		t.Errorf("after a full report of that router: %g s to wait, want 0", p1)
	}
}
