package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// layered are engines whose NIXL has a store beside it. d1 asks the store first, the others ask NIXL first.
// The store is vLLM's ExampleConnector, which ignores cache salts: so the reference has none.
var layered = &fleet{"layered", func() []*engine {
	return []*engine{
		{Name: "p0", Role: producer, Blocks: 4 * prefillBlocks, Flags: atOnce, Connector: beforeStore},
		{Name: "d0", Role: consumer, Blocks: 4 * prefillBlocks, Flags: atOnce, Connector: beforeStore},
		{Name: "d1", Role: consumer, Blocks: 4 * prefillBlocks, Flags: atOnce, Connector: behindStore},
		{Name: "ref", Blocks: 512, Flags: atOnce},
	}
}}

// multi splits requests between engines with NIXL first, and then shows what the other order costs. The
// doctor is not asked: it finds fault with a store that ignores cache salts.
func multi(ctx context.Context, s *stage) error {
	all := s.engines
	defer func() { s.engines = all }()
	only := func(decode string) {
		s.engines = slices.DeleteFunc(slices.Clone(all), func(e *engine) bool {
			return e.Role == consumer && e.Name != decode
		})
	}
	steps := []step{
		{"NIXL first, split answers", func() error {
			only("d0")
			return s.playPhase(ctx, phase{
				name: "NIXL and a store behind it, always split", local: "never", requests: hybridRequests, workers: 2,
				seed: s.seed + 19000, kinds: hybridKinds,
			})
		}},
	}
	if !s.simulate { // simulated engines have one connector
		steps = append(steps,
			step{"NIXL first, a stored prompt", func() error { return s.stored(ctx, "d0", 2) }},
			step{"the store first, a stored prompt", func() error { only("d1"); return s.stored(ctx, "d1", 1) }})
	}
	return inOrder(ctx, steps...)
}

// stored asks one prompt twice, with two cache salts, so that the store has it the second time. Both answers
// must be right. want is how many of the two prompts NIXL transfers.
func (s *stage) stored(ctx context.Context, decode string, want float64) error {
	file, err := s.configure("stored", "local: never")
	if err != nil {
		return err
	}
	r, err := s.serve(ctx, file)
	if err != nil {
		return err
	}
	const transfers = "vllm:nixl_xfer_time_seconds_count{"
	before, err := s.engine(decode).metric(ctx, transfers)
	if err != nil {
		return err
	}
	ids := newGenerator(uint64(time.Now().UnixNano())).ids(5 * blockTokens)
	for _, salt := range []string{"one", "two"} {
		q := plainIDs(ids, 8)
		q.body["cache_salt"] = salt
		if res := s.compare(ctx, r, q); res.diff != "" {
			return fmt.Errorf("the prompt with the salt %s: %s", salt, res.diff)
		}
	}
	after, err := s.engine(decode).metric(ctx, transfers)
	if err != nil {
		return err
	}
	records, err := readRecords(ctx, r)
	if err != nil {
		return err
	}
	for _, rec := range slices.Backward(records) {
		say("%s: %s, %d of %d tokens were cached", decode, rec.Mode, rec.Delivered, rec.Prompt)
	}
	if moved := sumOf(after) - sumOf(before); moved != want {
		err = fmt.Errorf("NIXL moved %v of two prompts to %s, want %v", moved, decode, want)
	}
	return err
}
