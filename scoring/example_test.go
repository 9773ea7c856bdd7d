package scoring_test

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/scoring"
)

// The weights that Tandem has without a configuration, two milliseconds of set-up, and the KV cache of an 8B
// model: 128 KiB a token.
var model = scoring.Weights{
	Alpha: scoring.Alpha{Auto: true}, Beta: 1, Gamma: 1, DecodePenalty: 1,
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
	speed := estimate.DefaultSpeed()
	p1 := scoring.Prefill{
		Queue: scoring.Queue{Wait: speed.Prefill(1_000, 0)}, // of one request of ordinary size
		Warm:  speed.Prefill(1_760, 10_240),
		Usage: 0.10,
	}
	d2 := scoring.Decode{
		Running: 12, Marginal: speed.Marginal(12_041), Output: 80, // tokens; at half of them it holds 12,041
		Usual: 256, // tokens of the requests that decode there
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

// The same replica alone. It would compute 4,000 tokens, and its 12 requests would stop meanwhile.
func ExampleModel_local() {
	speed := estimate.DefaultSpeed()
	d2 := scoring.Decode{
		Running: 12, Marginal: speed.Marginal(12_041), Output: 80, Usual: 256, Usage: 0.2048,
		Local: scoring.Local{
			Warm: speed.Prefill(4_000, 8_000), Active: 12,
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

// A table has the candidates of both sides, and compares all plans. Here p1 has cached most of the prompt and
// d2 is idle, but the link between them is slow: the best replicas of each side are the worst pair.
func ExampleTable() {
	speed := estimate.DefaultSpeed()
	prefills := []scoring.Prefill{
		{Warm: speed.Prefill(1_600, 6_400)},
		{Warm: speed.Prefill(8_000, 0)},
	}
	decodes := []scoring.Decode{
		{Running: 16, Marginal: speed.Marginal(8_050), Output: 100, Usual: 256, Missing: 8_000},
		{Marginal: speed.Marginal(8_050), Output: 100, Usual: 256, Missing: 8_000},
	}
	var table scoring.Table
	table.Ties = model.Ties(2*time.Millisecond, 0.02)
	table.PairRates.Reset(len(decodes)) // rows of as many pairs
	for _, bandwidth := range []float64{40e9, 2e9, 40e9, 40e9} {
		table.PairRates.Add(1 / bandwidth)
	}
	for i := range prefills {
		table.AddSender(model, &prefills[i], i)
	}
	for j := range decodes {
		table.AddReceiver(model, &decodes[j], j)
	}
	table.Admit()
	best := make([]scoring.Choice, 4)
	chosen, _, plans := table.Choose(rand.New(rand.NewPCG(1, 2)), best, nil)
	fmt.Printf("chosen of %d plans: p%d > d%d\n", plans, chosen.Prefill+1, chosen.Decode+1)
	for _, c := range best {
		fmt.Printf("p%d > d%d %4.0f ms\n", c.Prefill+1, c.Decode+1, 1e3*c.Cost)
	}
	// Output:
	// chosen of 4 plans: p1 > d1
	// p1 > d1  182 ms
	// p2 > d2  214 ms
	// p2 > d1  319 ms
	// p1 > d2  574 ms
}
