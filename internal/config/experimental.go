package config

import "time"

// Experimental are the settings that nobody needs to run Tandem: they are there to compare it with other
// policies and to take its estimates out of an experiment. Each stands at the path of its section. They may
// change or go with any release.
type Experimental struct {
	Pools   ExperimentalPools   `yaml:"pools"`
	Scoring ExperimentalScoring `yaml:"scoring"`
	Routers ExperimentalRouters `yaml:"routers"`
}

// ExperimentalPools is how a replica of each pool is chosen.
type ExperimentalPools struct {
	Prefill ExperimentalPool `yaml:"prefill"`
	Decode  ExperimentalPool `yaml:"decode"`
}

// ExperimentalPool is how a replica of one pool is chosen.
type ExperimentalPool struct {
	Policy string `yaml:"policy"` // cost | two-state | block-tracker | prefix-hash | overlap-tiers
	Rule   Rule   `yaml:"rule"`   // the numbers of every policy but cost
}

// What [ExperimentalPool.Policy] may be. All but cost choose a replica of the pool by itself; the rest of the
// plan is then chosen by costs, given that.
const (
	PolicyCost         = "cost"          // the cheapest plan, both sides together
	PolicyTwoState     = "two-state"     // longest match, unless the pool is out of balance
	PolicyBlockTracker = "block-tracker" // longest match, unless its replica has too many requests
	PolicyPrefixHash   = "prefix-hash"   // consistent hashing of the prompt's head with bounded loads
	PolicyOverlapTiers = "overlap-tiers" // weighted shares of cached tokens by tier and of idleness
)

// Rule is the numbers of the policies that choose by themselves. Each takes those that it knows.
type Rule struct {
	// Threshold is the share of the prompt from which on a match is followed: two-state, block-tracker,
	// overlap-tiers.
	Threshold float64 `yaml:"threshold"`
	// Apart and Times are of two-state: the pool is out of balance where the most loaded replica has more than
	// Apart requests more than the least loaded, and more than Times as many.
	Apart float64 `yaml:"apart"`
	Times float64 `yaml:"times"`
	// Bound is how many requests a replica may have, as a multiple of the mean: block-tracker, prefix-hash,
	// overlap-tiers below Threshold.
	Bound   float64 `yaml:"bound"`
	Overlap float64 `yaml:"overlap"` // overlap-tiers: weight of cached tokens
	Load    float64 `yaml:"load"`    // overlap-tiers: weight of idleness
	Hot     float64 `yaml:"hot"`     // overlap-tiers: what a token in the engine's own memory counts
	Warm    float64 `yaml:"warm"`    // overlap-tiers: what one in a tier below counts
}

// ExperimentalScoring is what plans are compared in, and what their times are predicted by.
type ExperimentalScoring struct {
	Units string `yaml:"units"` // seconds | raw: what the terms are counted in
	// on | off | shadow: whether what is learned of speeds and links decides.
	Calibration string        `yaml:"calibration"`
	TieAbsolute time.Duration `yaml:"tie_absolute"` // plans closer than this are a tie, broken at random
	TieRelative float64       `yaml:"tie_relative"` // ... or closer than this share, 0..1
	Speed       Speed         `yaml:"speed"`
}

// What [ExperimentalScoring.Units] may be.
const (
	Seconds = "seconds"
	Raw     = "raw"
)

// What [ExperimentalScoring.Calibration] may be.
const (
	CalibrationOn  = "on"  // what is learned decides
	CalibrationOff = "off" // speed and links decide as they stand in the file, or as the profile has them
	// So they do, and each decision tells what would have been chosen by what is learned.
	CalibrationShadow = "shadow"
)

// Speed is where learning from the engines' answers begins. A zero begins with a profile.
type Speed struct {
	Prefill float64 `yaml:"prefill"` // prompt tokens a second of one prefill replica
	Local   float64 `yaml:"local"`   // prompt tokens a second of one decode replica
	Decode  float64 `yaml:"decode"`  // answer tokens a second of one request alone
}

// ExperimentalRouters is how the other routers are asked.
type ExperimentalRouters struct {
	Interval time.Duration `yaml:"interval"` // between two questions to each of them
}
