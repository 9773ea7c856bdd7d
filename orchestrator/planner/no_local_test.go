package planner

import (
	"errors"
	"testing"
)

// With a policy of NoLocal no decode replica computes a prompt, whatever the request allows.
func TestNoLocal(t *testing.T) {
	f := newFleet(1, 1, nil)
	f.set(Policy{NoLocal: true})
	for _, split := range []bool{true, false} {
		r := f.fresh(16)
		r.LocalOK = true
		r.SplitOK = split
		b, err := f.pl.Plan(r, f.now)
		if none, _ := errors.AsType[*NoReplica](err); (none == nil) != split || split && b.Mode != Split {
			t.Errorf("SplitOK %v: %+v, %v", split, b, err)
		}
	}
}
