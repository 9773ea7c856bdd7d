package planner

import (
	"errors"
	"testing"
)

// If room or a replica appears while the planner prepares a refusal, the request is planned again and not
// refused.
func TestWhatComesWhileAPlanIsRefused(t *testing.T) {
	for name, comes := range map[string]struct{ before, between func(f *fleet) }{
		"room": {
			func(f *fleet) { f.says(f.decode, "d1", 9, 0, 0.99) },
			func(f *fleet) { f.says(f.decode, "d1", 0, 0, 0) },
		},
		"a decode replica": {
			func(f *fleet) { f.decode.SetHealthy("d1", false, "no answer") },
			func(f *fleet) { f.decode.SetHealthy("d1", true, "") },
		},
		"a prefill replica": {
			func(f *fleet) { f.prefill.SetHealthy("p1", false, "no answer") },
			func(f *fleet) { f.prefill.SetHealthy("p1", true, "") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(1, 1, nil)
			f.set(Policy{ExpectedOutput: longAnswers})
			r := f.request(1, 5000)
			r.LocalOK = false
			comes.before(f)
			if _, err := f.pl.Plan(r, f.now); err == nil {
				t.Fatal("there is a plan before")
			}
			q := f.pl.ask(r, f.now)
			f.pl.mu.Lock()
			planned := f.pl.evaluate(q, f.now)
			comes.between(f)
			err := f.pl.refusal.refuse(q, f.now)
			f.pl.mu.Unlock()
			if _, full := errors.AsType[*NoRoom](err); planned || !full {
				t.Errorf("planned %v, %v; want NoRoom", planned, err)
			}
			if _, err := f.pl.Plan(r, f.now); err != nil {
				t.Errorf("and then: %v", err)
			}
		})
	}
}
