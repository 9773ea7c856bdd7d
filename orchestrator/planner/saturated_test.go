package planner

import (
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/replica"
)

// saturate books Splits until requests with arriving blocks hold over half of the room of each decode replica
// that is not avoided. link is the speed of links in bytes per second.
func saturate(t *testing.T, f *fleet, link float64, avoid ...replica.ID) {
	t.Helper()
	f.set(Policy{Links: [replica.Links]float64{link, link, link, link}})
	for range 24 {
		r := f.fresh(8000)
		r.AvoidDecode = avoid
		b := f.plan(t, r)
		b.PrefillLease.Done(0, 0, f.now)
		if _, err := f.pl.Rebind(b, r, f.now); err != nil {
			t.Fatal(err)
		}
	}
}

// A saturated decode replica computes a prompt itself, though a Split would cost less, and the record says
// why it is in no pair.
func TestSaturatedReplicaComputesPrompts(t *testing.T) {
	f := newFleet(2, 1, nil)
	saturate(t, f, 1e9)
	r := f.fresh(8000)
	r.LocalOK = true
	b := f.plan(t, r)
	if b.Mode != Local {
		t.Errorf("handed over: %s", b.Decision.Why)
	}
	d, err := f.pl.Explain(r, f.now)
	if err != nil {
		t.Fatal(err)
	}
	pairs := 0
	for _, x := range d.Excluded {
		if x.With == "d1" && strings.Contains(x.Reason, "requests that wait for their blocks") {
			pairs++
		}
	}
	if pairs != 2 {
		t.Errorf("excluded: %+v, want both pairs", d.Excluded)
	}
}

// A request goes to the decode replica that is not saturated.
func TestRequestsGoToAReplicaThatIsNotSaturated(t *testing.T) {
	f := newFleet(2, 2, nil)
	saturate(t, f, 1e9, "d2")
	r := f.fresh(8000)
	r.LocalOK = true
	if b := f.plan(t, r); b.Decode.ID != "d2" {
		t.Errorf("went to %s", b.Decode.ID)
	}
}

// A long prompt that a prefill replica has cached goes to a saturated decode replica, if its transfer ends
// sooner than a local prefill would.
func TestWhatTakesLongToComputeFollowsBlocks(t *testing.T) {
	f := newFleet(1, 1, func(r *replica.Replica) { r.Facts.Blocks = 20_000 })
	saturate(t, f, 8e9)
	f.store(t, f.prefill, "p1", 7, 100_000/blockSize)
	r := f.request(7, 100_000)
	r.LocalOK = true
	if b := f.plan(t, r); b.Mode != Split {
		t.Errorf("computed at %s", b.Decode.ID)
	}
}
