package planner

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
)

// An idle fleet prefills prompts of any length on decode replicas, because the transfer is the only
// difference. This must not change after three short prompts that took 19 ms each, as on the GPU of
// docs/compatibility.md: the fixed time of a prefill must not count as time per token. Nor may unmeasured
// prefill replicas count as equal to the profile.
func TestShortPromptsMakeNoLongOneSplit(t *testing.T) {
	f := newFleet(2, 2, nil)
	is := estimate.DefaultSpeed()
	is.T0 = 19.5e-3
	seed := uint32(1)
	for _, tokens := range []int{512, 2048, 8192} {
		for i := range 5 {
			f.idle()
			seed++
			r := f.request(seed, tokens)
			b := f.plan(t, r)
			if b.Mode != Local {
				t.Fatalf("prompt %d of %d tokens is split: %s", i+1, tokens, b.Decision.Reason)
			}
			if _, err := f.pl.Rebind(b, r, f.now); err != nil {
				t.Fatal(err)
			}
			took := seconds(is.Prefill(tokens, 0))
			f.pass(took)
			f.pl.FirstToken(b, f.now)
			b.Finish(1, took, took, f.now)
			f.pass(2 * time.Second)
		}
	}
}
