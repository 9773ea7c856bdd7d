package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// hybrids are a prefill and a decode engine with n-gram speculation. Not all layers of their model see the
// whole prompt, so their KV cache has several groups. A block has a hash in each group, and a group with a
// window hands over only its last blocks. There is no third engine: the prefill engine computes the reference
// answers.
var hybrids = &fleet{"hybrids", func() []*engine {
	return []*engine{
		{Name: "p0", Role: producer, Blocks: 4 * prefillBlocks, Flags: atOnce, Shape: sliding},
		{Name: "d0", Role: consumer, Blocks: 4 * prefillBlocks, Flags: atOnce, Shape: sliding},
	}
}}

// hybridRequests is the number of requests that are split and compared.
const hybridRequests = 44

// hybridKinds are the kinds of the suite that work with speculation.
var hybridKinds = []func(*generator) request{
	(*generator).exactLength, (*generator).chatTurns, (*generator).sharedIDs, (*generator).texts,
	(*generator).messagesTurns, (*generator).sharedIDs, (*generator).responsesTurns, (*generator).exactLength,
	(*generator).salted, (*generator).stops, (*generator).toTheLimit,
}

// hybrid splits requests over such a pair. It checks answers and predictions, and that groups and speculation
// occur.
func hybrid(ctx context.Context, s *stage) error {
	steps := []step{
		{"the doctor", func() error { return consult(ctx, s) }},
		{"split answers", func() error {
			return s.playPhase(ctx, phase{
				name: "a hybrid model that guesses ahead, always split", local: "never",
				requests: hybridRequests,
				workers:  1, seed: s.seed + 12000, predicted: 0.95, kinds: hybridKinds,
			})
		}},
	}
	if !s.simulate { // simulated engines have one group and do not speculate
		steps = append(steps,
			step{"several groups", func() error { return s.groups(ctx, s.engine("p0"), s.engine("d0")) }},
			step{"guesses", func() error { return guesses(ctx, s.engine("d0")) }})
	}
	return inOrder(ctx, steps...)
}

// groups prefills like a router. It requires several groups in the parameters, with fewer blocks in some
// groups, and gives the blocks back.
func (s *stage) groups(ctx context.Context, p, d *engine) error {
	prompt := newGenerator(uint64(time.Now().UnixNano())).ids(20 * blockTokens)
	params, err := prefillOnly(ctx, p, prompt)
	if err != nil {
		return err
	}
	errBack := giveBack(ctx, d, prompt, params)
	var blocks []int
	groups, _ := params["remote_block_ids"].([]any)
	for _, g := range groups {
		ids, _ := g.([]any)
		blocks = append(blocks, len(ids))
	}
	say("a prompt of %d blocks has these blocks by group: %v", 20, blocks)
	if err := severalGroups(blocks, 20); err != nil {
		return errors.Join(err, errBack)
	}
	_, err = s.awaitIdle(ctx, idleLimit)
	return errors.Join(err, errBack)
}

// severalGroups requires one group with all blocks, and another with fewer.
func severalGroups(blocks []int, all int) error {
	whole, some := 0, 0
	for _, n := range blocks {
		switch {
		case n == all:
			whole++
		case 0 < n && n < all:
			some++
		}
	}
	if whole == 0 || some == 0 || whole+some < len(blocks) {
		return fmt.Errorf("groups of %v blocks are handed over of %d, so that no hybrid was tried", blocks,
			all)
	}
	return nil
}

// guesses requires that some of the engine's draft tokens were accepted: otherwise nothing was tested.
func guesses(ctx context.Context, e *engine) error {
	drafts, err := e.metric(ctx, "vllm:spec_decode_num_draft_tokens_total{")
	accepted, errAccepted := e.metric(ctx, "vllm:spec_decode_num_accepted_tokens_total{")
	if err := errors.Join(err, errAccepted); err != nil {
		return err
	}
	say("%s guessed %v tokens, and %v came true", e.Name, sumOf(drafts), sumOf(accepted))
	if sumOf(accepted) == 0 {
		return fmt.Errorf("no guess of %s came true", e.Name)
	}
	return nil
}
