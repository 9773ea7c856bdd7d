package policies

import (
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/orchestrator/planner"
	"github.com/tandem-router/tandem/orchestrator/policy"
)

// production returns production's rule with that name.
func production[R planner.Chooser](name string) R { return policy.Rule(name).Chooser.(R) }

// ruled chooses the prefill replica by a rule of production (see [planner.Chooser]), and the decode replica
// by count.
type ruled struct {
	rule  planner.Chooser
	head  float64 // tokens that are hashed, for rules that hash
	all   []Param
	seats []planner.Target
}

func (x *ruled) params() []Param { return x.all }

// Pick asks the rule.
func (x *ruled) Pick(q *Query, ps, ds []Replica) (p, d int) {
	x.seats = x.seats[:0]
	for i := range ps {
		r := &ps[i]
		x.seats = append(x.seats,
			planner.Target{Name: uint64(i), Held: r.Matched, Load: r.Requests})
	}
	prompt := planner.Prompt{Tokens: q.Tokens}
	if x.head > 0 {
		prompt.Head = q.head(int(x.head))
	}
	return x.rule.Choose(prompt, x.seats, q.Rand), least(q, ds, requests)
}

var heads = []float64{256, 1024, 1536, 2048, 4096}

func newTwoState() Picker {
	r := production[policy.TwoState](config.PolicyTwoState)
	return &ruled{rule: &r, all: []Param{
		{
			"apart", &r.Apart, "most requests by which the most and the least loaded replica may differ",
			[]float64{2, 4, 8, 16, 32, 64},
		},
		{"threshold", &r.Threshold, "shares of the prompt above this count as a match", nil},
		{"times", &r.Times, "greatest factor by which the most and the least loaded replica may differ", nil},
	}}
}

func newTracker() Picker {
	r := production[policy.Tracker](config.PolicyBlockTracker)
	return &ruled{rule: &r, all: []Param{
		{
			"bound", &r.Bound, "most requests of a replica, as a multiple of the mean",
			[]float64{1, 1.25, 1.5, 2, 3, 5},
		},
		{"threshold", &r.Threshold, "shares of the prompt above this count as a match", nil},
	}}
}

func newPrefixHash() Picker {
	r := production[policy.PrefixHash](config.PolicyPrefixHash)
	x := &ruled{rule: &r, head: planner.HeadTokens}
	x.all = []Param{
		{"head", &x.head, "tokens that are hashed", heads},
		{"bound", &r.Bound, "most requests of a replica, as a multiple of the mean", nil},
	}
	return x
}

func newOverlap() Picker {
	r := production[policy.Overlap](config.PolicyOverlapTiers)
	x := &ruled{rule: &r, head: planner.HeadTokens}
	x.all = []Param{
		{"head", &x.head, "tokens that are hashed if no replica has enough of the prompt", heads},
		{"load", &r.Load, "weight of idleness", nil},
		{"overlap", &r.Overlap, "weight of the overlap", nil},
		{"threshold", &r.Threshold, "share of the prompt that some replica must have", nil},
		{"bound", &r.Otherwise.Bound, "then most requests of a replica, as a multiple of the mean", nil},
	}
	return x
}
