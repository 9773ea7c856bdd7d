package policy

import (
	"testing"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/scoring"
)

// The defaults of the rules are the numbers of their authors, and each of the configured ones arrives.
func TestPoliciesOfPools(t *testing.T) {
	c := config.Default()
	if p := Of(c); p.PrefillRule != nil || p.DecodeRule != nil {
		t.Fatal("costs are a rule")
	}
	for name, want := range map[string]scoring.Rule{
		config.PolicyTwoState:     scoring.TwoState{Threshold: 0.3, Apart: 64, Times: 1.5},
		config.PolicyBlockTracker: scoring.Tracker{Threshold: 0.3, Bound: 1.25},
		config.PolicyPrefixHash:   scoring.PrefixHash{Bound: 1.25},
		config.PolicyOverlapTiers: scoring.Overlap{
			Overlap: 0.6, Load: 0.3, Hot: 1, Warm: 0.6, Threshold: 0.3, Otherwise: scoring.PrefixHash{Bound: 1.25},
		},
	} {
		c := config.Default()
		c.Experimental.Pools.Prefill.Policy = name
		p := Of(c)
		if r := p.PrefillRule; p.DecodeRule != nil || r == nil || r.Name != name || r.Rule != want ||
			r.Tiers != (name == config.PolicyOverlapTiers) {
			t.Errorf("%s is %+v, want %+v", name, r, want)
		}
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	decode := &c.Experimental.Pools.Decode
	decode.Policy = config.PolicyOverlapTiers
	decode.Rule = config.Rule{Threshold: 1, Bound: 2, Overlap: 3, Load: 4, Hot: 6, Warm: 7}
	want := scoring.Overlap{
		Threshold: 1, Overlap: 3, Load: 4, Hot: 6, Warm: 7, Otherwise: scoring.PrefixHash{Bound: 2},
	}
	if got := Of(c).DecodeRule; got == nil || got.Rule != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	decode.Policy = config.PolicyTwoState
	decode.Rule = config.Rule{Threshold: 1, Apart: 2, Times: 3}
	if got := Of(c).DecodeRule; got.Rule != (scoring.TwoState{Threshold: 1, Apart: 2, Times: 3}) {
		t.Errorf("%+v", got)
	}
	decode.Policy = config.PolicyBlockTracker
	decode.Rule = config.Rule{Threshold: 1, Bound: 2}
	if got := Of(c).DecodeRule; got.Rule != (scoring.Tracker{Threshold: 1, Bound: 2}) {
		t.Errorf("%+v", got)
	}
}
