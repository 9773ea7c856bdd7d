package orchestrator

import (
	"testing"

	"tandem/internal/config"
	"tandem/scoring"
)

// The numbers that scoring's rules come with are the configuration's defaults, and each of the configured ones arrives.
func TestPoliciesOfPools(t *testing.T) {
	c := config.Default()
	if p := policy(c); p.PrefillRule != nil || p.DecodeRule != nil {
		t.Fatal("costs are a rule")
	}
	for name, want := range map[string]scoring.Rule{
		config.PolicyTwoState: scoring.DefaultTwoState(), config.PolicyBlockTracker: scoring.DefaultTracker(),
		config.PolicyPrefixHash: scoring.DefaultPrefixHash(), config.PolicyOverlapTiers: scoring.DefaultOverlap(),
	} {
		c := config.Default()
		c.Experimental.Pools.Prefill.Policy = name
		p := policy(c)
		if r := p.PrefillRule; p.DecodeRule != nil || r == nil || r.Name != name || r.Rule != want || r.Tiers != (name == config.PolicyOverlapTiers) {
			t.Errorf("%s is %+v, want %+v", name, r, want)
		}
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	decode := &c.Experimental.Pools.Decode
	decode.Policy = config.PolicyOverlapTiers
	decode.Rule = config.Rule{Threshold: 1, Bound: 2, Overlap: 3, Load: 4, Hot: 6, Warm: 7}
	want := scoring.Overlap{Threshold: 1, Overlap: 3, Load: 4, Hot: 6, Warm: 7, Otherwise: scoring.PrefixHash{Bound: 2}}
	if got := policy(c).DecodeRule; got == nil || got.Rule != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	decode.Policy = config.PolicyTwoState
	decode.Rule = config.Rule{Threshold: 1, Apart: 2, Times: 3}
	if got := policy(c).DecodeRule; got.Rule != (scoring.TwoState{Threshold: 1, Apart: 2, Times: 3}) {
		t.Errorf("%+v", got)
	}
	decode.Policy = config.PolicyBlockTracker
	decode.Rule = config.Rule{Threshold: 1, Bound: 2}
	if got := policy(c).DecodeRule; got.Rule != (scoring.Tracker{Threshold: 1, Bound: 2}) {
		t.Errorf("%+v", got)
	}
}
