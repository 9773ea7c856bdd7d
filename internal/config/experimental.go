package config

import "time"

// Experimental are settings for experiments: to compare Tandem with other policies, and to replace its
// estimates. No operator needs them. Each stands at the path of its section. They may change or go with any
// release.
type Experimental struct {
	// Policy chooses the prefill replica: cost | two-state | block-tracker | prefix-hash | overlap-tiers.
	Policy  string              `yaml:"policy"`
	Scoring ExperimentalScoring `yaml:"scoring"`
	Routers ExperimentalRouters `yaml:"routers"`
}

// What [Experimental.Policy] may be. With all but cost, costs then choose the decode replica, and whether it
// prefills by itself.
const (
	PolicyCost         = "cost"          // the cheapest plan, both sides together
	PolicyTwoState     = "two-state"     // longest match, unless the pool is out of balance
	PolicyBlockTracker = "block-tracker" // longest match, unless its replica has too many requests
	PolicyPrefixHash   = "prefix-hash"   // consistent hashing of the prompt's head with bounded loads
	PolicyOverlapTiers = "overlap-tiers" // weighted shares of cached tokens and of idleness
)

// ExperimentalScoring is what plans are compared in, and what their times are predicted by.
type ExperimentalScoring struct {
	Units string `yaml:"units"` // seconds | raw: what the terms are counted in
	Speed Speed  `yaml:"speed"`
}

// What [ExperimentalScoring.Units] may be.
const (
	Seconds = "seconds"
	Raw     = "raw"
)

// Speed is where learning from the engines' answers begins. A zero begins with a profile.
type Speed struct {
	Prefill float64 `yaml:"prefill"` // prompt tokens a second of one prefill replica
	Local   float64 `yaml:"local"`   // prompt tokens a second of one decode replica
	Decode  float64 `yaml:"decode"`  // answer tokens a second of one request alone
}

// ExperimentalRouters is how the other routers are asked.
type ExperimentalRouters struct {
	Interval time.Duration `yaml:"interval"` // between two questions to the same router
}
