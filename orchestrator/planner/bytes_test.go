package planner

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

// Models have KV caches of different sizes. The size of its own model prices a transfer, and measures the
// link.
func TestTransfersHaveTheSizeOfTheirModel(t *testing.T) {
	const big, tokens = 1 << 20, 8000
	f := newFleet(2, 2, func(r *replica.Replica) {
		if strings.HasSuffix(string(r.ID), "2") {
			r.Facts.Model = "big"
			r.Facts.Root = "org/big"
			r.Facts.Models = []string{"big", "adapter"}
			r.Facts.Adapters = []string{"adapter"}
		}
	})
	f.set(Policy{KVBytesOf: map[string]float64{"big": big}})
	link := f.pl.policy.Links[replica.SameRack]
	setup := f.pl.policy.Setup.Seconds()
	bytes := map[string]float64{"m": tokens * f.pl.policy.KVBytesPerToken, "big": tokens * big}
	bytes["adapter"] = bytes["big"]
	transfer := func(model string) float64 {
		r := f.fresh(tokens)
		r.Model = model
		d, err := f.pl.Explain(r, f.now)
		if err != nil {
			t.Fatal(err)
		}
		return d.Plans[0].Terms.Transfer / 1e3
	}
	fixed := transfer("m") - bytes["m"]/link
	for range 2 { // in turn: no model keeps the size of the one before
		for _, model := range []string{"m", "big", "adapter"} {
			if got, want := transfer(model), fixed+bytes[model]/link; math.Abs(got/want-1) > 0.01 {
				t.Errorf("a transfer of %s is put at %g s, want %g", model, got, want)
			}
		}
	}
	for range 20 {
		r := f.fresh(tokens)
		r.Model = "big"
		b := f.plan(t, r)
		b.PrefillLease.Done(0, time.Second, f.now)
		if _, err := f.pl.Rebind(b, r, f.now); err != nil {
			t.Fatal(err)
		}
		f.come(b, f.landed(b, f.now, setup+bytes["big"]/link))
		f.idle()
		f.pass(time.Second)
	}
	speeds := f.pl.LinkSpeeds(f.now)
	if len(speeds) != 1 || math.Abs(speeds[0].BytesPerSecond/link-1) > 0.25 {
		t.Errorf("learned %+v, want about %g bytes a second", speeds, link)
	}
}
