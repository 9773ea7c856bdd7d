package prefill_test

import (
	"fmt"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/roster"
	"github.com/tandem-router/tandem/prefill"
)

// A pool offers candidates with their cached tokens and their waiting times, and takes bookings. The caller
// gives the time.
func ExamplePool() {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	pool := prefill.New(prefill.Options{})
	// Tokens a second.
	pool.Configure(prefill.Settings{Speed: estimate.Rates(10_000, 0), LoadTTL: 10 * time.Second})
	facts := replica.Facts{
		Models: []string{"m"}, BlockSize: 16, Blocks: 10_000,
		Events: replica.EventSource{Endpoint: "tcp://engine:5557"},
	}
	pool.SetMembers([]replica.Replica{{ID: "p1", Facts: facts}, {ID: "p2", Facts: facts}}, now)
	for _, id := range []replica.ID{"p1", "p2"} {
		pool.SetTrust(id, replica.Live)
		pool.Observe(id, replica.Load{Source: replica.Metrics}, now) // idle
	}

	tokens := make([]kv.Token, 8_000)
	pool.Apply("p1", &kv.Batch{Events: []kv.Event{stored(tokens[:6_400])}})

	chain, adapter, _ := pool.Chain("m")
	keys := chain.Append(nil, chain.Root(adapter, ""), tokens)
	show := func() prefill.Candidate {
		query := prefill.Query{Model: "m", Tokens: len(tokens), Depth: make([]int32, pool.Holders())}
		pool.Match(roster.Prompt{Keys: keys, Tokens: len(tokens)}, query.Depth)
		candidates, view := pool.Candidates(&query, now, nil, nil)
		for _, c := range candidates {
			fmt.Printf("%s holds %d tokens, would begin in %.0f ms and take %.0f ms\n",
				view.Replicas[c.Slot].ID, c.Matched, 1e3*c.Wait, 1e3*c.Warm)
		}
		return candidates[0]
	}
	c := show()
	lease := pool.Book(&c, now)
	fmt.Println("booked on p1, 60 ms later:")
	now = now.Add(60 * time.Millisecond)
	show()
	lease.Done(6_400, 160*time.Millisecond, now)
	// Output:
	// p1 holds 6400 tokens, would begin in 0 ms and take 160 ms
	// p2 holds 0 tokens, would begin in 0 ms and take 800 ms
	// booked on p1, 60 ms later:
	// p1 holds 6400 tokens, would begin in 100 ms and take 160 ms
	// p2 holds 0 tokens, would begin in 0 ms and take 800 ms
}

// stored is an engine's event that it has stored the blocks of tokens.
func stored(tokens []kv.Token) kv.Event {
	e := kv.Event{Kind: kv.Stored, Tokens: tokens, BlockSize: 16, Group: kv.NoGroup}
	for i := range len(tokens) / 16 {
		e.Hashes = append(e.Hashes, kv.EngineHash(i+1))
	}
	return e
}
