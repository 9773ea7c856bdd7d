package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"
)

// pair are a prefill and a decode engine of vLLM 0.28.0: events are maps, and a reply to a replay has four
// frames, like today. There is no third engine: the prefill engine, which never takes blocks from others,
// computes the reference answers.
var pair = &fleet{"pair", func() []*engine {
	return []*engine{
		{Name: "p0", Role: producer, Version: "0.28.0", Blocks: 2 * prefillBlocks},
		{Name: "d0", Role: consumer, Version: "0.28.0", Blocks: prefillBlocks},
	}
}}

// pairRequests is the number of requests that are split and compared.
const pairRequests = 44

// between splits requests over a version between 0.20 and the current one, and checks its differences.
func between(ctx context.Context, s *stage) error {
	p, d := s.engine("p0"), s.engine("d0")
	return inOrder(ctx,
		step{"the doctor", func() error { return s.consultPair(ctx) }},
		step{"split answers", func() error {
			return s.playPhase(ctx, phase{
				name: p.Version + ", one at a time, always split", local: "never", requests: pairRequests,
				workers:   1,
				seed:      s.seed + 40,
				predicted: 0.95, // one request is 2 %
			})
		}},
		step{"events", func() error { return errors.Join(p.speaks(ctx, "map", 4), d.speaks(ctx, "map", 4)) }},
		step{"transfer parameters", func() error { return s.handOver(ctx, p, d) }},
		step{"cached tokens", func() error { return s.tellsCached(ctx) }},
	)
}

// consultPair checks that the doctor finds nothing worse than an old version.
func (s *stage) consultPair(ctx context.Context) error {
	file, err := s.configure("pair-doctor")
	if err != nil {
		return err
	}
	return s.diagnosis(ctx, nil, "-config", file)
}

// pairParams are the keys of the parameters that 0.28.0 returns. 0.32.0 has three more.
var pairParams = []string{
	"do_remote_decode", "do_remote_prefill", "remote_block_ids", "remote_blocks_expiry_time",
	"remote_engine_id",
	"remote_host", "remote_num_tokens", "remote_port",
	"remote_request_id", "tp_size", "transfer_mode",
}

// handOver prefills like a router and compares the keys of the parameters with the version's. It gives the
// blocks back by a request that the decode engine refuses.
func (s *stage) handOver(ctx context.Context, p, d *engine) error {
	prompt := newGenerator(uint64(time.Now().UnixNano())).ids(200)
	status, body, err := submit(ctx, p.url()+completions, map[string]any{
		"model": modelName, "prompt": prompt, "max_tokens": 1,
		"kv_transfer_params": map[string]any{"do_remote_decode": true, "do_remote_prefill": false},
	})
	var reply struct {
		Params map[string]json.RawMessage `json:"kv_transfer_params"`
	}
	if err := errors.Join(err, json.Unmarshal(body, &reply)); err != nil || status != http.StatusOK {
		return fmt.Errorf("a prefill: %d: %w: %s", status, err, body)
	}
	if keys := slices.Sorted(maps.Keys(reply.Params)); !slices.Equal(keys, pairParams) {
		return fmt.Errorf("its parameters are %q, not %q", keys, pairParams)
	}
	used, err := p.usage(ctx)
	if err != nil || used == 0 {
		return fmt.Errorf("a lease is not seen in the usage of %s: %v, %w", p.Name, used, err)
	}
	status, body, err = submit(ctx, d.url()+completions, map[string]any{
		"model": "no such model", "prompt": prompt, "max_tokens": 1, "kv_transfer_params": reply.Params,
	})
	if err != nil || status != http.StatusNotFound {
		return fmt.Errorf("an unknown model: %d: %w: %s", status, err, body)
	}
	if told, err := runOut(ctx, s.engines); err != nil || len(told) == 0 {
		return fmt.Errorf("nobody says which leases run out: %w", err)
	}
	took, err := s.awaitIdle(ctx, idleLimit)
	say("a lease of %s was over %.2f s after a refused request with its parameters", p.Name, took.Seconds())
	return err
}

// tellsCached requires a router to report the prefill engine's number of cached tokens.
func (s *stage) tellsCached(ctx context.Context) error {
	file, err := s.configure("cached", "local: never")
	if err != nil {
		return err
	}
	r, err := s.serve(ctx, file)
	if err != nil {
		return err
	}
	return errors.Join(r.tellsCached(ctx), r.end())
}

// tellsCached sends one prompt twice, where such an old decode engine calls all that it was sent cached.
func (r *router) tellsCached(ctx context.Context) error {
	prompt := newGenerator(uint64(time.Now().UnixNano())).ids(7*blockTokens + 3)
	body := map[string]any{"model": modelName, "prompt": prompt, "max_tokens": 4, "temperature": 0}
	for _, want := range []int{0, 7 * blockTokens} {
		a, err := ask(ctx, r.front, completions, body)
		if err != nil || a.status != http.StatusOK || a.cached != want {
			return fmt.Errorf("status %d, %d tokens are said to have been cached, not %d: %w",
				a.status, a.cached, want, err)
		}
		body["stream"], body["stream_options"] = true, map[string]any{"include_usage": true}
	}
	return nil
}
