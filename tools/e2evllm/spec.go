package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// drafters are a prefill and a decode engine of a model with several layers that draft tokens ahead (MTP).
// The prefill engine leaves the last tokens of a prompt to the decode engine, which drafts from them.
var drafters = &fleet{"drafters", func() []*engine {
	return []*engine{
		{Name: "p0", Role: producer, Blocks: 4 * prefillBlocks, Flags: atOnce, Shape: drafting},
		{Name: "d0", Role: consumer, Blocks: 4 * prefillBlocks, Flags: atOnce, Shape: drafting},
	}
}}

// withheld is how many tokens of a prompt a prefill engine of drafters does not compute: one fewer than it
// drafts.
const withheld = 2

// spec plays split requests with such a pair. It checks the answers, that tokens are withheld, and that
// drafts come true. Predictions may be wrong by less than a block on average: an engine that drafts computes
// the last block of a cached prefix again, and no event tells so.
func spec(ctx context.Context, s *stage) error {
	steps := []step{
		{"the doctor", func() error { return consult(ctx, s) }},
		{"split answers", func() error {
			return s.playPhase(ctx, phase{
				name: "a model that drafts ahead, always split", local: "never", requests: hybridRequests,
				workers: 1, seed: s.seed + 13000, kinds: hybridKinds, // predicted: see spec
			})
		}},
	}
	if !s.simulate { // simulated engines withhold no tokens and do not draft
		steps = append(steps,
			step{"tokens left over", func() error { return s.leftOver(ctx, s.engine("p0"), s.engine("d0")) }},
			step{"drafts", func() error { return guesses(ctx, s.engine("d0")) }})
	}
	return inOrder(ctx, steps...)
}

// leftOver prefills like a router, requires that the last tokens of the prompt are not computed, and gives
// the blocks back.
func (s *stage) leftOver(ctx context.Context, p, d *engine) error {
	prompt := newGenerator(uint64(time.Now().UnixNano())).ids(20 * blockTokens)
	params, err := prefillOnly(ctx, p, prompt)
	if err != nil {
		return err
	}
	err = giveBack(ctx, d, prompt, params)
	_, errIdle := s.awaitIdle(ctx, idleLimit)
	sent := params["remote_num_tokens"]
	say("of a prompt of %d tokens %v are handed over", len(prompt), sent)
	if sent != float64(len(prompt)-withheld) {
		errSent := fmt.Errorf("%v tokens of %d are handed over, want all but %d", sent, len(prompt), withheld)
		err = errors.Join(err, errSent)
	}
	return errors.Join(err, errIdle)
}

// prefillOnly gets from an engine the parameters with which a decode engine could continue.
func prefillOnly(ctx context.Context, p *engine, prompt []int) (map[string]any, error) {
	status, body, err := submit(ctx, p.url()+completions, map[string]any{
		"model": modelName, "prompt": prompt, "max_tokens": 1,
		"kv_transfer_params": map[string]any{"do_remote_decode": true, "do_remote_prefill": false},
	})
	var reply struct {
		Params map[string]any `json:"kv_transfer_params"`
	}
	if err := errors.Join(err, json.Unmarshal(body, &reply)); err != nil || status != http.StatusOK {
		return nil, fmt.Errorf("a prefill: %d: %w: %.300s", status, err, body)
	}
	return reply.Params, nil
}

// giveBack ends the lease of blocks by a request that the engine refuses.
func giveBack(ctx context.Context, d *engine, prompt []int, params map[string]any) error {
	_, _, err := submit(ctx, d.url()+completions, map[string]any{
		"model": "no such model", "prompt": prompt, "max_tokens": 1, "kv_transfer_params": params,
	})
	return err
}
