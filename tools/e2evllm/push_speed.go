package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// facing are a pair of engines that push, and a pair that pulls.
var facing = &fleet{"facing", func() []*engine {
	return append(
		wiredBy(pushes, []*engine{
			{Name: "p0", Role: producer, Blocks: 512, Flags: atOnce},
			{Name: "d0", Role: consumer, Blocks: 512, Flags: atOnce},
		}),
		&engine{Name: "p1", Role: producer, Blocks: 512, Flags: atOnce},
		&engine{Name: "d1", Role: consumer, Blocks: 512, Flags: atOnce},
	)
}}

// speedRounds is the number of streams of each length over each pair, after speedWarm that are not counted.
const (
	speedRounds = 21
	speedWarm   = 3
)

// pushSpeed measures the time to the first token over both pairs in turn, one request at a time, and of one
// engine that is asked directly.
func pushSpeed(ctx context.Context, s *stage) error {
	push, errPush := s.serveFor(ctx, s.engines[:2])
	pull, errPull := s.serveFor(ctx, s.engines[2:])
	if err := errors.Join(errPush, errPull); err != nil {
		return err
	}
	g, ways := newGenerator(s.seed+20000), []string{push.front, pull.front, s.engine("d1").url()}
	for _, n := range []int{128, 480, 960} {
		took := make([][]time.Duration, len(ways))
		for i := range speedWarm + speedRounds {
			for w, base := range ways {
				first, err := firstToken(ctx, base, plainIDs(g.ids(n), 4))
				if err != nil {
					return err
				}
				if i >= speedWarm {
					took[w] = append(took[w], first)
				}
			}
		}
		middle := func(w int) float64 {
			return float64(slices.Sorted(slices.Values(took[w]))[speedRounds/2].Microseconds()) / 1e3
		}
		say("TTFT of %d tokens, median of %d: push %.1f ms, pull %.1f ms, one engine alone %.1f ms",
			n, speedRounds, middle(0), middle(1), middle(2))
	}
	return errors.Join(push.end(), pull.end())
}

// firstToken is the time until the first text of q, as a stream.
func firstToken(ctx context.Context, base string, q request) (first time.Duration, err error) {
	q.body["stream"] = true
	begun := time.Now()
	t := tell(ctx, base, q, func() {
		if first == 0 {
			first = time.Since(begun)
		}
	})
	if t.status != 200 || !t.ended || first == 0 {
		return 0, fmt.Errorf("a stream of %s: %+v", base, t)
	}
	return first, nil
}

// serveFor starts a router for the given engines only.
func (s *stage) serveFor(ctx context.Context, engines []*engine) (*router, error) {
	all := s.engines
	defer func() { s.engines = all }()
	s.engines = engines
	file, err := s.configure(engines[0].Name, "local: never")
	if err != nil {
		return nil, err
	}
	return s.serve(ctx, file)
}
