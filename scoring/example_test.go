package scoring_test

import (
	"fmt"
	"time"

	"tandem/scoring"
)

// The weights that Tandem has without a configuration, two milliseconds of set-up, and the KV cache of an 8B
// model: 128 KiB a token.
var model = scoring.Weights{
	Alpha: scoring.Alpha{Auto: true}, Beta: 1, Gamma: 1, DecodePenalty: 1,
	AffinityShare: 0.3, AffinitySaved: 50 * time.Millisecond,
}.Model(2*time.Millisecond, 128<<10)

// show prints the terms of a plan that are not zero, in milliseconds.
func show(plan string, t scoring.Terms) {
	fmt.Println(plan)
	for name, seconds := range t.All() {
		if seconds > 0 {
			fmt.Printf("  %-12s %6.1f\n", name, 1e3*seconds)
		}
	}
	fmt.Printf("  %-12s %6.1f\n", "total", 1e3*t.Total())
}

// The worked example of docs/scoring.md: a prompt of 12,000 tokens, of which p1 holds 10,240 and d2 8,000.
// Pools return such facts; what they cost is worked out here. 40 GB/s lie between the two replicas.
func ExampleSplit() {
	speed := scoring.DefaultSpeed()
	p1 := scoring.Prefill{
		Queue: scoring.Queue{Wait: speed.Prefill(1_000, 0)}, // of one request of ordinary size
		Cold:  speed.Prefill(12_000, 0),
		Warm:  speed.Prefill(1_760, 10_240),
		Share: 10_240.0 / 12_000,
		Usage: 0.10,
	}
	d2 := scoring.Decode{
		Running: 12, Marginal: speed.Marginal(12_041), Output: 80, // tokens; at half of them it holds 12,041
		Usual: 256, // tokens of those who decode there
		First: 10.54e-3, Missing: 4_000, Usage: 0.2048,
	}
	show("p1 > d2", scoring.Split(model, &p1, &d2, 1/40e9))
	// Output:
	// p1 > d2
	//   wait           22.0
	//   prefill        62.4
	//   transfer       25.6
	//   decode         94.1
	//   pressure       18.4
	//   total         222.7
}

// The same replica alone. It would compute 4,000 tokens, for which the 12 requests on it stand still.
func ExampleModel_local() {
	speed := scoring.DefaultSpeed()
	d2 := scoring.Decode{
		Running: 12, Marginal: speed.Marginal(12_041), Output: 80, Usual: 256, Usage: 0.2048,
		Local: scoring.Local{
			Cold: speed.Prefill(12_000, 0), Warm: speed.Prefill(4_000, 8_000), Share: 8_000.0 / 12_000,
			Active: 12,
		},
	}
	show("d2 alone", model.Local(&d2))
	// Output:
	// d2 alone
	//   prefill       129.7
	//   decode         94.1
	//   interference  343.4
	//   pressure       12.9
	//   total         580.1
}
