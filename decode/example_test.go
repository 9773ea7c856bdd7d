package decode_test

import (
	"fmt"
	"time"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
)

// Headroom is counted in KV blocks: all blocks minus the blocks that the engine reports as used and the
// blocks that were promised since. A lease promises the blocks of a prompt and of its expected answer. Its
// release gives them back. Answers are long here, so a full replica stays full for minutes.
func ExamplePool() {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	pool := decode.New(decode.Options{})
	pool.Configure(decode.Settings{LoadTTL: 10 * time.Second, ExpectedOutput: 16_000})
	pool.SetMembers([]replica.Replica{
		{ID: "d1", Facts: replica.Facts{Models: []string{"m"}, BlockSize: 16, Blocks: 1_000}},
	}, now)
	pool.Observe("d1", replica.Load{Source: replica.Metrics, Usage: 0.25}, now)
	free := func() int { return pool.Status(now)[0].Free }
	fmt.Println("free:", free())

	query := decode.Query{Model: "m", Tokens: 8_000, MaxTokens: 64}
	candidates, _, _ := pool.Candidates(&query, now, nil, nil)
	fmt.Println("needs:", candidates[0].Need)
	lease := pool.Book(&candidates[0], &query, decode.Schedule{}, now)
	fmt.Println("free once it is booked:", free())

	_, _, rejected := pool.Candidates(&query, now, nil, nil)
	fmt.Println("replicas without room for another one:", rejected.Full)

	lease.Release(now)
	lease.Release(now) // a second release does nothing
	fmt.Println("free once it is released:", free())
	// Output:
	// free: 750
	// needs: 504
	// free once it is booked: 246
	// replicas without room for another one: 1
	// free once it is released: 750
}

// A long local prompt is sent in pieces while other requests decode there. Each time the lease says up to
// which token the prompt may be sent. The last time it is the whole prompt.
func ExampleLease_Next() {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	began := now
	pool := decode.New(decode.Options{})
	pool.Configure(decode.Settings{
		Speed: estimate.Rates(10_000, 100), LoadTTL: 10 * time.Second, ExpectedOutput: 100,
		Piece: 150 * time.Millisecond,
	})
	pool.SetMembers([]replica.Replica{
		{ID: "d1", Facts: replica.Facts{Models: []string{"m"}, BlockSize: 16, Blocks: 1_000, PrefixCaching: true}},
	}, now)
	pool.Observe("d1", replica.Load{Source: replica.Metrics, Running: 4, Usage: 0.1}, now)

	query := decode.Query{Model: "m", Tokens: 5_000, Pieces: true}
	candidates, _, _ := pool.Candidates(&query, now, nil, nil)
	lease := pool.Book(&candidates[0], &query, decode.Schedule{Local: true}, now)
	defer lease.Release(now)
	for upto := 0; upto < query.Tokens; {
		next := lease.Next(now, nil)
		fmt.Printf("after %v: tokens up to %d\n", now.Sub(began), next.Upto)
		now = now.Add(160 * time.Millisecond)
		lease.Computed(true, -1, decode.Pauses{}, now)
		upto = next.Upto
	}
	// Output:
	// after 0s: tokens up to 1248
	// after 160ms: tokens up to 2496
	// after 320ms: tokens up to 3744
	// after 480ms: tokens up to 5000
}
