package main

import "context"

// ranked are a prefill server of two data-parallel ranks, a decode engine, and one that splits nothing; all of them have adapters.
var ranked = &fleet{"ranked", func() []*engine {
	both := []string{adapterA, adapterB}
	return []*engine{
		{Name: "p0", Role: producer, Blocks: prefillBlocks, Ranks: 2, Adapters: both},
		{Name: "d0", Role: consumer, Blocks: 2 * decodeBlocks, Adapters: both},
		{Name: "ref", Blocks: 512, Adapters: both},
	}
}}

func ranks(ctx context.Context, s *stage) error { return consult(ctx, s) }
