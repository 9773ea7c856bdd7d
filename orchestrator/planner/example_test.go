package planner_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/planner"
	"github.com/tandem-router/tandem/prefill"
	"github.com/tandem-router/tandem/scoring"
)

// Two prefill and two decode replicas. p1 has cached most of the prompt. The planner compares every pair and
// every single decode replica, books the cheapest plan in both pools, and gives the reason.
func ExamplePlanner_Plan() {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	prefills, decodes := pools(now)
	pl := planner.New(prefills, decodes, policy(), nil)

	prompt := make([]kv.Token, 12_000)
	prefills.Apply("p1", &kv.Batch{Events: []kv.Event{stored(prompt[:10_240])}})
	decodes.Observe("d1", replica.Load{Source: replica.Metrics, Running: 30, Usage: 0.6}, now)

	chain, adapter, _ := prefills.Chain("m")
	keys := chain.Append(nil, chain.Root(adapter, ""), prompt)
	booking, err := pl.Plan(&planner.Request{
		ID: "r1", Model: "m", Tokens: len(prompt), Exact: true, MaxTokens: 100,
		PrefillKeys: keys, DecodeKeys: keys, SplitOK: true, LocalOK: true,
	}, now)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer booking.Release(now)

	fmt.Println(booking.Mode, booking.Prefill.ID, ">", booking.Decode.ID)
	fmt.Println(booking.Decision.Reason)
	for _, p := range booking.Decision.Plans {
		fmt.Printf("%3.0f ms %s %s > %s\n", p.Total, p.Mode, p.Prefill, p.Decode)
	}
	// Output:
	// split p1 > d2
	// 10,240 of 12,000 tokens cached on p1, idle; d2 has 20,000 free blocks
	// 114 ms split p1 > d2
	// 189 ms split p1 > d1
	// 362 ms split p2 > d2
	// 437 ms split p2 > d1
	// 310 ms local  > d2
	// 386 ms local  > d1
}

// The life of a plan after booking. Before the decode leg is sent, its replica is checked again: here it has
// left the pool, and another replica takes over. The times of the legs teach the pools. In the end nothing
// is booked.
func ExampleBooking() {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	prefills, decodes := pools(now)
	pl := planner.New(prefills, decodes, policy(), nil)
	decodes.Observe("d1", replica.Load{Source: replica.Metrics, Running: 30, Usage: 0.6}, now)
	request := &planner.Request{
		ID: "r1", Model: "m", Tokens: 12_000, Exact: true, MaxTokens: 100, SplitOK: true,
		AvoidPrefill: []replica.ID{"p2"},
	}
	booking, err := pl.Plan(request, now)
	if err != nil {
		fmt.Println(err)
		return
	}
	show := func(when string) {
		p, d := prefills.Status(now)[0], decodes.Status(now)
		fmt.Printf("%s: %s > %s; %d requests on p1;", when, booking.Prefill.ID, booking.Decode.ID, p.Requests)
		for _, m := range d {
			fmt.Printf(" %d on %s", m.Leases, m.ID)
		}
		fmt.Println()
	}
	show("planned")

	now = now.Add(310 * time.Millisecond)
	booking.PrefillLease.Done(0, 310*time.Millisecond, now)
	decodes.SetMembers([]replica.Replica{{ID: "d1", Facts: facts, Place: rack}}, now) // d2 has left
	moved, err := pl.Rebind(booking, request, now)
	fmt.Println("moved:", moved, err)
	show("prefilled")

	now = now.Add(60 * time.Millisecond)
	pl.FirstToken(booking, now)
	now = now.Add(time.Second)
	booking.Finish(100, 370*time.Millisecond, 1370*time.Millisecond, now)
	booking.Release(now)
	show("answered")
	// Output:
	// planned: p1 > d2; 1 requests on p1; 0 on d1 1 on d2
	// moved: true <nil>
	// prefilled: p1 > d1; 0 requests on p1; 1 on d1
	// answered: p1 > d1; 0 requests on p1; 0 on d1
}

// If no decode replica has room, now or some seconds after the prefill, the request belongs in the admission
// queue. The error says when to try again.
func ExampleNoRoom() {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	prefills, decodes := pools(now)
	long := policy()
	long.ExpectedOutput = 20_000
	pl := planner.New(prefills, decodes, long, nil)
	for _, id := range []replica.ID{"d1", "d2"} {
		decodes.Observe(id, replica.Load{Source: replica.Metrics, Running: 4, Usage: 1}, now)
	}
	_, err := pl.Plan(&planner.Request{
		Model: "m", Tokens: 12_000, Exact: true, SplitOK: true, LocalOK: true,
	}, now)
	if full, ok := errors.AsType[*planner.NoRoom](err); ok {
		fmt.Println(full)
		fmt.Println("look again within a minute:", full.Retry < time.Minute)
	}
	// Output:
	// no room: decode: d1 has room for 0 blocks, not 1967; d2 has room for 0 blocks, not 1967
	// look again within a minute: true
}

// All replicas are alike, and in one rack.
var (
	facts = replica.Facts{
		Model: "m", Models: []string{"m"}, Version: "0.32.0", BlockSize: 16, Blocks: 20_000, MaxModelLen: 128_000,
		Events: replica.EventSource{Endpoint: "tcp://engine:5557"},
	}
	rack = replica.Place{Rack: "r1"}
)

// pools has two replicas each, which have just reported that they are idle.
func pools(now time.Time) (*prefill.Pool, *decode.Pool) {
	prefills, decodes := prefill.New(prefill.Options{}), decode.New(decode.Options{})
	prefills.SetMembers([]replica.Replica{
		{ID: "p1", Facts: facts, Place: rack}, {ID: "p2", Facts: facts, Place: rack},
	}, now)
	decodes.SetMembers([]replica.Replica{
		{ID: "d1", Facts: facts, Place: rack}, {ID: "d2", Facts: facts, Place: rack},
	}, now)
	for _, id := range []replica.ID{"p1", "p2"} {
		prefills.SetTrust(id, replica.Live)
		prefills.Observe(id, replica.Load{Source: replica.Metrics}, now)
	}
	for _, id := range []replica.ID{"d1", "d2"} {
		decodes.SetTrust(id, replica.Live)
		decodes.Observe(id, replica.Load{Source: replica.Metrics}, now)
	}
	return prefills, decodes
}

// policy sets every field. In production it is made from the configuration.
func policy() planner.Policy {
	return planner.Policy{
		Weights: scoring.Weights{
			Alpha: scoring.Alpha{Auto: true}, Beta: 1, Gamma: 1, DecodePenalty: 1,
		},
		Links: [replica.Links]float64{100e9, 40e9, 4e9, 3e9}, // bytes a second in a host, rack, zone, beyond
		Setup: 2 * time.Millisecond, KVBytesPerToken: 128 << 10, ExpectedOutput: 256,
		TieAbsolute: 2 * time.Millisecond, TieRelative: 0.02,
		PrefillLoadTTL: 10 * time.Second, DecodeLoadTTL: 10 * time.Second,
	}
}

// stored is an engine's event that it has stored the blocks of tokens.
func stored(tokens []kv.Token) kv.Event {
	e := kv.Event{Kind: kv.Stored, Tokens: tokens, BlockSize: 16, Group: kv.NoGroup}
	for i := range len(tokens) / 16 {
		e.Hashes = append(e.Hashes, kv.EngineHash(i+1))
	}
	return e
}
