package policies

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/orchestrator/policy"
)

// entry is a policy that can be named.
type entry struct {
	name    string
	brief   string
	events  [2]bool
	make    func() Picker
	breaker bool // see [entry.detector]
	sent    sent
	mixed   bool // for pools where nothing is split
	tiers   bool // it tells the GPU from lower memory
}

// detector is what keeps failing replicas out: smg's circuit breaker where the policy is of its family,
// Envoy's outlier detection elsewhere. A name may ask for the breaker.
func (e *entry) detector(c cluster.Config) detector {
	if e.breaker || e.name == "kv-aware" || strings.HasPrefix(e.name, "smg-") {
		return newBreaker(c)
	}
	return newEnvoy(c)
}

// withBreaker behind the name of a policy of the field puts it behind smg's circuit breaker.
const withBreaker = "+breaker"

// trackerBlocks is how many blocks of a replica seed 000's tracker remembers.
const trackerBlocks = 100_000

// field lists the policies, with the parameters that their authors ship.
//
// Long: a row a policy.
func field() []entry {
	none := [2]bool{}
	both := [2]bool{true, true}
	prefillOnly := [2]bool{true, false}
	of := func(p Picker) func() Picker { return func() Picker { return p } }
	return []entry{
		{name: "random", brief: "any replica", events: none, make: of(random{})},
		{name: "round-robin", brief: "one after the other", events: none, make: of(&roundRobin{})},
		{name: "least-requests", brief: "fewest requests in flight", events: none, make: of(leastRequests{})},
		{
			name: "least-tokens", brief: "fewest uncached tokens in flight, its own included", events: prefillOnly,
			make: of(leastTokens{}),
		},
		{
			name: "session-sticky", brief: "rendezvous hash of the session, or of the prompt's head",
			events: prefillOnly, make: of(defaultSticky()),
		},
		{
			name: "lmetric", brief: "(queued + uncached tokens) x (requests + 1)", events: prefillOnly,
			make: of(lmetric{}),
		},
		{
			name: "llm-d", brief: "prefix 2 : queue 1 in both pools, prefill apart from 16 uncached tokens on",
			events: both, make: of(defaultLLMD()),
		},
		{
			name: "llm-d-tiers", brief: "its precise profile: prefix by tier 3 : queue 2 : free KV 2",
			events: prefillOnly, make: of(defaultLLMDTiers()), tiers: true,
		},
		{
			name: "llm-d-sent", brief: "its default of 2025: prefix by what was sent 1 : queue 1 : free KV 1",
			events: prefillOnly, make: of(defaultLLMDSent()), sent: sent{keeps: sentBlocks, head: sentHead},
		},
		{
			name: "llm-d-goals", brief: "its predicted latency: headroom to the goals of classes; else as llm-d",
			events: both, make: of(defaultByGoals()),
		},
		{
			name: "kv-aware", brief: "vllm-router: uncached + queued tokens; decode by count", events: prefillOnly,
			make: of(&kvAware{}),
		},
		{
			name: "smg-cache-aware", brief: "most overlap unless unbalanced (32, 1.1); decode by count",
			events: prefillOnly, make: of(defaultSMGCacheAware()),
		},
		{
			name: "two-state", brief: "match above 30 % unless unbalanced (64, 1.5), from what was sent",
			events: prefillOnly, make: newTwoState, sent: sent{keeps: trackerBlocks},
		},
		{
			name: "block-tracker", brief: "match above 30 % within 1.25 of the mean load, from what was sent",
			events: prefillOnly, make: newTracker, sent: sent{keeps: trackerBlocks},
		},
		{
			name: "overlap-tiers", brief: "0.6 overlap by tier + 0.3 idleness + 0.1 health; else a bounded hash",
			events: prefillOnly, make: newOverlap,
		},
		{
			name: "chwbl", brief: "consistent hash of 256 tokens with loads bounded to 1.25 of the mean",
			events: prefillOnly, make: newPrefixHash,
		},
		{
			name:  "dynamo",
			brief: "queued + own uncached tokens, credit 1; decode by active blocks, local below 2,048", events: both,
			make: of(defaultDynamo()),
		},
		{
			name: "dynamo-priority", brief: "the same, with its router's queue by the priority of classes",
			events: both, make: of(defaultDynamoPriority()),
		},
		{
			name: "dynamo-mixed", brief: "its cost where nothing is split: active tokens on top", events: prefillOnly,
			make: of(defaultDynamoMixed()), mixed: true,
		},
	}
}

// variant is a form of Tandem's own decision that can be named.
type variant struct {
	name    string
	brief   string
	options Options
}

// ours lists them, production's first.
func ours() []variant {
	return []variant{
		{"tandem", "the joint choice of production", Options{}},
		{"tandem-split", "the same without Local(d)", Options{NoLocal: true}},
		{"tandem-local", "the same without Split(p, d): decode prefills everything", Options{NoSplit: true}},
		{"tandem-unclassed", "the same without the goals of classes", Options{NoGoals: true}},
		{"tandem-sequential", "the same terms, prefill first and decode given it", Options{Order: PrefillFirst}},
		{"tandem-decode-first", "the same terms, decode first and prefill given it", Options{Order: DecodeFirst}},
		{
			"tandem-split-sequential", "as tandem-sequential, without Local(d)",
			Options{NoLocal: true, Order: PrefillFirst},
		},
		{
			"tandem-two-state", "prefill by the policy two-state of production, the rest by costs",
			byRule("two-state"),
		},
		{"tandem-block-tracker", "prefill by block-tracker", byRule("block-tracker")},
		{"tandem-prefix-hash", "prefill by prefix-hash", byRule("prefix-hash")},
		{"tandem-overlap-tiers", "prefill by overlap-tiers", byRule("overlap-tiers")},
		{
			"tandem-split-decode-first", "as tandem-decode-first, without Local(d)",
			Options{NoLocal: true, Order: DecodeFirst},
		},
	}
}

// oracles lists the policies that know everything.
func oracles() []string { return []string{"oracle", "oracle-terms", "oracle-pieces"} }

// byRule is production with a rule for its prefill pool.
func byRule(name string) Options { return Options{Rule: policy.Rule(name)} }

// Names lists every policy, Tandem's first and the oracles last.
func Names() []string {
	var names []string
	for _, e := range ours() {
		names = append(names, e.name)
	}
	for _, e := range field() {
		names = append(names, e.name)
	}
	return append(names, oracles()...)
}

// find is what a policy without settings is made of: Options, an entry's Picker, or nil for an oracle.
func find(name string) (any, error) {
	for _, e := range ours() {
		if e.name == name {
			return &e.options, nil
		}
	}
	for _, e := range field() {
		if e.name == name {
			return e.make(), nil
		}
	}
	if slices.Contains(oracles(), name) {
		return nil, nil
	}
	return nil, fmt.Errorf("no policy %q: one of %v", name, Names())
}

// New makes the router of a policy. Behind its name may stand settings of its parameters, as
// "dynamo:credit=1.5:local=0".
func New(name string, c cluster.Config, seed uint64) (cluster.Router, error) {
	name, breaker := strings.CutSuffix(name, withBreaker)
	name, rule := cutLocal(name)
	base, settings, _ := strings.Cut(name, ":")
	what, err := find(base)
	if err != nil {
		return nil, err
	}
	if err := set(what, settings); err != nil {
		return nil, fmt.Errorf("policy %s: %w", base, err)
	}
	if _, ok := what.(Picker); rule != "" && !ok {
		return nil, fmt.Errorf("policy %s: %s is for policies of the field, and this one decides by itself",
			base, withLocal)
	}
	switch x := what.(type) {
	case *Options:
		return NewTandem(c, *x, seed), nil
	case Picker:
		at := slices.IndexFunc(field(), func(e entry) bool { return e.name == base })
		e := field()[at]
		e.breaker = breaker
		if rule != "" {
			local, err := localize(x, rule)
			if err != nil {
				return nil, fmt.Errorf("policy %s: %w", base, err)
			}
			if !mixed(&c) { // there, everything is prefilled where it decodes
				x, e.events = local, [2]bool{true, true}
			}
		}
		f := newField(e, x, c, seed)
		if y, ok := what.(*dynamoPriority); ok && !f.alone {
			return &prioritized{f, y.threshold}, nil
		}
		return f, nil
	}
	return newOracle(base, c, seed), nil
}

func newOracle(name string, c cluster.Config, seed uint64) cluster.Router {
	ours := policy.Default()
	switch name {
	case "oracle":
		return NewGreedyOracle(c, seed)
	case "oracle-pieces":
		return NewOracleInPieces(c, ours.Weights, ours.Piece, seed)
	}
	return NewOracle(c, ours.Weights, seed)
}
