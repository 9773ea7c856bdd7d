package planner

import (
	"errors"
	"strings"
	"testing"

	"tandem/internal/replica"
)

// saturate lets requests that may be computed at no decode replica take half of the room of those that they do
// not avoid, over slow links, before any of their blocks are there.
func saturate(t *testing.T, f *fleet, avoid ...replica.ID) {
	t.Helper()
	f.set(Policy{Links: [replica.Links]float64{1e9, 1e9, 1e9, 1e9}, Calibration: CalibrateOff})
	for n := range 100 {
		r := f.fresh(8000)
		r.AvoidDecode = avoid
		b, err := f.pl.Plan(r, f.now)
		if full, ok := errors.AsType[*NoRoom](err); ok && strings.Contains(full.Reason, "who take half of its room") {
			if n < 10 || full.Retry < minRetry || full.Every <= 0 || full.Part <= 0 {
				t.Fatalf("after %d requests: %+v", n, full)
			}
			return
		}
		if err != nil {
			t.Fatalf("request %d: %v", n, err)
		}
		f.pl.PrefillDone(b, 0, 0, f.now)
		if _, err := f.pl.Rebind(b, r, f.now); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("a hundred requests wait for their blocks")
}

// A decode replica that expects blocks for half of its room computes a prompt, though a pair would cost less,
// and the record says why there is no pair with it.
func TestSaturatedReplicaComputesPrompts(t *testing.T) {
	f := newFleet(2, 1, nil)
	saturate(t, f)
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
		if x.With == "d1" && strings.Contains(x.Reason, "others wait for their blocks there") {
			pairs++
		}
	}
	if pairs != 2 {
		t.Errorf("excluded: %+v, want both pairs", d.Excluded)
	}
}

// Where another decode replica expects no blocks, they go there.
func TestBlocksGoToWhoIsNotSaturated(t *testing.T) {
	f := newFleet(2, 2, nil)
	saturate(t, f, "d2")
	if b := f.plan(t, f.fresh(8000)); b.Decode.ID != "d2" {
		t.Errorf("went to %s", b.Decode.ID)
	}
}
