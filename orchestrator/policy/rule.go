package policy

import (
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/orchestrator/planner"
	"github.com/tandem-router/tandem/scoring"
)

// Rule returns what chooses a replica of a pool by itself, nil where costs do.
func Rule(p config.ExperimentalPool) *planner.Rule {
	r := p.Rule
	named := &planner.Rule{Name: p.Policy}
	switch p.Policy {
	case config.PolicyTwoState:
		named.Rule = scoring.TwoState{Threshold: r.Threshold, Apart: r.Apart, Times: r.Times}
	case config.PolicyBlockTracker:
		named.Rule = scoring.Tracker{Threshold: r.Threshold, Bound: r.Bound}
	case config.PolicyPrefixHash:
		named.Rule = scoring.PrefixHash{Bound: r.Bound}
	case config.PolicyOverlapTiers:
		named.Tiers = true
		named.Rule = scoring.Overlap{
			Overlap: r.Overlap, Load: r.Load, Hot: r.Hot, Warm: r.Warm, Threshold: r.Threshold,
			Otherwise: scoring.PrefixHash{Bound: r.Bound},
		}
	default:
		return nil
	}
	return named
}
