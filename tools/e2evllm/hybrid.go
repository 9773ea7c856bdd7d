package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"tandem/tools/pinned"
)

//go:embed hybrid.py
var hybridMaker []byte

// hybrids are a prefill and a decode engine of a model whose layers do not all see the whole prompt, and which guess
// tokens ahead. Their KV cache has several groups: a block has a hash in each, and of the groups with a window only the
// last blocks are handed over. There is no third: the prefill engine is asked for what an answer should be.
var hybrids = &fleet{"hybrids", func() []*engine {
	return []*engine{
		{Name: "p0", Role: producer, Blocks: 4 * prefillBlocks, Flags: atOnce, Hybrid: true},
		{Name: "d0", Role: consumer, Blocks: 4 * prefillBlocks, Flags: atOnce, Hybrid: true},
	}
}}

// speculating lets an engine guess what comes next by what came before: the only way that needs no second model.
const speculating = `{"method":"ngram","num_speculative_tokens":3,"prompt_lookup_max":4,"prompt_lookup_min":2}`

// hybridRequests is how many requests are split and compared.
const hybridRequests = 44

// hybridKinds are those of the suite that need nothing which guessing ahead does not go with.
var hybridKinds = []func(*generator) request{
	(*generator).exactLength, (*generator).chatTurns, (*generator).sharedIDs, (*generator).texts,
	(*generator).messagesTurns, (*generator).sharedIDs, (*generator).responsesTurns, (*generator).exactLength,
	(*generator).salted, (*generator).stops, (*generator).toTheLimit,
}

// hybrid plays split requests with such a pair: answers, predictions, and that there are groups and guesses at all.
func hybrid(ctx context.Context, s *stage) error {
	steps := []step{
		{"the doctor", func() error { return consult(ctx, s) }},
		{"split answers", func() error {
			return s.playPhase(ctx, phase{
				name: "a hybrid model that guesses ahead, always split", local: "never", requests: hybridRequests,
				workers: 1, seed: s.seed + 12000, predicted: 0.95, kinds: hybridKinds,
			})
		}},
	}
	if !s.simulate { // whose engines have one group, and guess nothing
		steps = append(steps,
			step{"several groups", func() error { return s.groups(ctx, s.engine("p0"), s.engine("d0")) }},
			step{"guesses", func() error { return guesses(ctx, s.engine("d0")) }})
	}
	return inOrder(ctx, steps...)
}

// groups prefills as a router does, wants several groups in the parameters, fewer blocks of some of them, and gives the
// blocks back.
func (s *stage) groups(ctx context.Context, p, d *engine) error {
	prompt := newGenerator(uint64(time.Now().UnixNano())).ids(20 * blockTokens)
	status, body, err := submit(ctx, p.url()+completions, map[string]any{
		"model": modelName, "prompt": prompt, "max_tokens": 1,
		"kv_transfer_params": map[string]any{"do_remote_decode": true, "do_remote_prefill": false},
	})
	var reply struct {
		Params map[string]any `json:"kv_transfer_params"`
	}
	if err := errors.Join(err, json.Unmarshal(body, &reply)); err != nil || status != http.StatusOK {
		return fmt.Errorf("a prefill: %d: %w: %.300s", status, err, body)
	}
	refused := map[string]any{
		"model": "no such model", "prompt": prompt, "max_tokens": 1, "kv_transfer_params": reply.Params,
	}
	_, _, errBack := submit(ctx, d.url()+completions, refused)
	var blocks []int
	groups, _ := reply.Params["remote_block_ids"].([]any)
	for _, g := range groups {
		ids, _ := g.([]any)
		blocks = append(blocks, len(ids))
	}
	say("a prompt of %d blocks is handed over as %v", 20, blocks)
	if err := severalGroups(blocks, 20); err != nil {
		return errors.Join(err, errBack)
	}
	_, err = s.awaitIdle(ctx, idleLimit)
	return errors.Join(err, errBack)
}

// severalGroups wants one group to have all blocks, and another fewer.
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
		return fmt.Errorf("groups of %v blocks are handed over of %d, so that no hybrid was tried", blocks, all)
	}
	return nil
}

// guesses wants guesses of the engine to have come true: otherwise nothing was tried.
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

func (e environment) hybrid() string {
	return filepath.Join(pinned.Folder(e.root, "e2e-hybrid", hybridMaker, modelMaker), "model")
}

// shape makes the hybrid model, if an engine is of it.
func shape(ctx context.Context, env environment, engines []*engine) error {
	for _, e := range engines {
		if e.Hybrid {
			dir := filepath.Dir(env.hybrid())
			return pinned.Once(ctx, say, dir, "hybrid", func(ctx context.Context) error { return makeHybrid(ctx, env) })
		}
	}
	return nil
}

func makeHybrid(ctx context.Context, e environment) error {
	maker := filepath.Join(filepath.Dir(e.hybrid()), "hybrid.py")
	err := errors.Join(os.RemoveAll(e.hybrid()), os.MkdirAll(e.hybrid(), 0o755), os.WriteFile(maker, hybridMaker, 0o644))
	if err != nil {
		return err
	}
	return pinned.Run(ctx, []string{"HF_HUB_OFFLINE=1"}, e.python(), maker, e.model(), e.hybrid())
}
