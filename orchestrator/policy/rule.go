package policy

import (
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// Rule returns the rule of another router with its authors' numbers, by its name in experimental.policy;
// nil for a name without a rule, such as cost.
func Rule(name string) *planner.Rule {
	hash := PrefixHash{Bound: 1.25}
	rules := map[string]planner.Chooser{
		config.PolicyTwoState:     TwoState{Threshold: 0.3, Apart: 64, Times: 1.5},
		config.PolicyBlockTracker: Tracker{Threshold: 0.3, Bound: 1.25},
		config.PolicyPrefixHash:   hash,
		config.PolicyOverlapTiers: Overlap{Overlap: 0.6, Load: 0.3, Threshold: 0.3, Otherwise: hash},
	}
	if rules[name] == nil {
		return nil
	}
	return &planner.Rule{Name: name, Chooser: rules[name]}
}
