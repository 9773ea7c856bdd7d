package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// ranked are a prefill server with two data-parallel ranks, a decode engine, and an engine that splits
// nothing. All have adapters.
var ranked = &fleet{"ranked", func() []*engine {
	both := []string{adapterA, adapterB}
	return []*engine{
		{Name: "p0", Role: producer, Blocks: prefillBlocks, Ranks: 2, Adapters: both},
		{Name: "d0", Role: consumer, Blocks: 2 * decodeBlocks, Adapters: both},
		{Name: "ref", Blocks: 512, Adapters: both},
	}
}}

// ranks plays with the prefill server of two ranks. For Tandem each rank is a replica, with its own blocks,
// events, load and capacity.
func ranks(ctx context.Context, s *stage) error {
	if err := consult(ctx, s); err != nil {
		return err
	}
	file, err := s.configure("ranks", "local: never", "timeouts: {queue: 2m}", evenSpeeds)
	if err != nil {
		return err
	}
	r, err := s.serveHearing(ctx, file)
	if err != nil {
		return err
	}
	return errors.Join(
		s.hold(ctx, r, "sessions return to their rank", s.sessions),
		s.hold(ctx, r, "a client names a rank", s.namedRanks),
		s.hold(ctx, r, "the load of one rank", s.loadOfARank),
		s.rankPhase(ctx, r, phase{
			name: "two ranks, one at a time", requests: 40, workers: 1, seed: s.seed + 5000, predicted: 0.99,
			kinds: rankKinds,
		}),
		s.rankPhase(ctx, r, phase{
			name: "two ranks, eight at a time", requests: 80, workers: 8, seed: s.seed + 6000,
			predicted: 0.95,
			kinds:     rankKinds,
		}),
		s.hold(ctx, r, "what is known of each rank", s.ranksKnown),
		r.end(),
		s.audit(ctx, 9),
	)
}

// serveHearing starts a router and returns when it follows the events of every replica. Before that its
// predictions are incomplete.
func (s *stage) serveHearing(ctx context.Context, file string) (*router, error) {
	r, err := s.serve(ctx, file)
	if err != nil {
		return nil, err
	}
	return r, eventually(ctx, 10*time.Second, func() error {
		seen, err := readReplicas(ctx, r)
		for name, one := range seen {
			if !strings.HasPrefix(one.Events, "live") {
				err = errors.Join(err, fmt.Errorf("the events of %s are %s", name, one.Events))
			}
		}
		return err
	})
}

// rankKinds are the kinds that engines with adapters survive: on CPUs vLLM 0.32.0 crashes on the
// log-probabilities of a prompt beside another request (lora/punica_wrapper/punica_cpu.py, add_lora_logits:
// the indices are those of the sampled tokens).
var rankKinds = []func(*generator) request{
	(*generator).exactLength, (*generator).chatTurns, (*generator).sharedIDs, (*generator).messagesTurns,
	(*generator).responsesTurns, (*generator).batchOfIDs,
	(*generator).salted, (*generator).texts, (*generator).sampled, (*generator).logprobs,
	(*generator).chatTurns,
	(*generator).stops, (*generator).sharedIDs,
	(*generator).messagesTurns, (*generator).responsesTurns, (*generator).several,
	(*generator).messagesSalted,
	(*generator).toTheLimit, (*generator).tooLong,
}

// hold plays one part of an act and prints its duration.
func (s *stage) hold(
	ctx context.Context, r *router, what string, part func(context.Context, *router) error,
) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	begun := time.Now()
	if err := part(ctx, r); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	say("%s: held, %.1f s", what, time.Since(begun).Seconds())
	return nil
}

// rankNames are the replica names of the ranks of e.
func (e *engine) rankNames() []string {
	if e.Ranks < 2 {
		return []string{e.Name}
	}
	var names []string
	for n := range e.Ranks {
		names = append(names, e.Name+"/dp"+strconv.Itoa(n))
	}
	return names
}

// rankPhase is a phase with a router that serves others too. Every rank must get its share of a crowd.
func (s *stage) rankPhase(ctx context.Context, r *router, ph phase) error {
	before, err := readRecords(ctx, r)
	if err != nil {
		return err
	}
	begun := time.Now()
	results := s.compareAll(ctx, r, ph)
	took := time.Since(begun)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	idle, errIdle := s.awaitIdle(ctx, idleLimit)
	records, err := readRecords(ctx, r)
	if err := errors.Join(errIdle, err); err != nil {
		return err
	}
	records = records[:len(records)-len(before)]
	v := judge(results, records)
	v.print(os.Stdout, ph, took, idle)
	errs := []error{v.verdict(ph.predicted)}
	if ph.workers > 1 {
		errs = append(errs, shared(records, s.engine("p0").rankNames()))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s: %w", ph.name, err)
	}
	return nil
}

// shared returns an error if a replica prefilled less than a fifth of the split requests.
func shared(records []record, replicas []string) error {
	count, all := map[string]int{}, 0
	for _, rec := range records {
		if rec.Mode == "split" {
			count[rec.Prefill]++
			all++
		}
	}
	say("prefilled by: %v", count)
	var errs []error
	for _, name := range replicas {
		if 5*count[name] < all {
			errs = append(errs, fmt.Errorf("%s prefilled %d of %d prompts", name, count[name], all))
		}
	}
	return errors.Join(errs...)
}
