package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// idleLimit is the time after the last answer by which an engine must hold no block. Leases that are not
// given back stay for longer.
const idleLimit = 2 * time.Second

// awaitIdle waits until no engine holds a block for a request, and returns the waiting time.
func (s *stage) awaitIdle(ctx context.Context, limit time.Duration) (time.Duration, error) {
	begun := time.Now()
	err := noneRunsOut(ctx, s.engines, func() error { return s.holdNothing(ctx, limit) })
	return time.Since(begun), err
}

// awaitFree is awaitIdle after the requests of a phase. If the engines take no lease back, leases may expire.
// Then a canary request that was given up, as on a slow machine, leaves its blocks until its lease ends.
func (s *stage) awaitFree(ctx context.Context, expires bool) (time.Duration, error) {
	if !expires {
		return s.awaitIdle(ctx, idleLimit)
	}
	begun := time.Now()
	err := s.holdNothing(ctx, leaseTime+2*time.Second)
	return time.Since(begun), err
}

// holdNothing waits until no engine holds a block for a request.
func (s *stage) holdNothing(ctx context.Context, limit time.Duration) error {
	begun := time.Now()
	err := eventually(ctx, limit, func() error {
		var errs []error
		for _, e := range s.engines {
			errs = append(errs, e.idle(ctx))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		err = fmt.Errorf("%.1f s after the last answer: %w", time.Since(begun).Seconds(), err)
	}
	return err
}

// idle returns an error if the engine runs or keeps anything for requests.
func (e *engine) idle(ctx context.Context) error {
	used, err := e.usage(ctx)
	if err != nil || used == 0 {
		return err
	}
	runs, err := e.metric(ctx, "vllm:num_requests_running{")
	waits, errWaits := e.metric(ctx, "vllm:num_requests_waiting{")
	if err := errors.Join(err, errWaits); err != nil {
		return err
	}
	return fmt.Errorf("%s still uses %.2f %% of its blocks, with %v requests that run and %v that wait",
		e.Name, 100*used, sumOf(runs), sumOf(waits))
}

func sumOf(of []float64) (sum float64) {
	for _, n := range of {
		sum += n
	}
	return sum
}

// noneRunsOut requires that no lease of the engines expires while wait lasts: an expired lease frees blocks,
// too, and the blocks would seem to have been given back.
func noneRunsOut(ctx context.Context, engines []*engine, wait func() error) error {
	before, err := runOut(ctx, engines)
	if err != nil {
		return err
	}
	err = wait()
	after, errAfter := runOut(ctx, engines)
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if n := after[name] - before[name]; n > 0 {
			err = errors.Join(err, fmt.Errorf("%.0f leases of %s were not given back and ran out", n, name))
		}
	}
	return errors.Join(err, errAfter)
}

// runOut is the number of leases of each engine that have expired so far. An engine that cannot hand blocks
// over does not report it.
func runOut(ctx context.Context, engines []*engine) (map[string]float64, error) {
	all := map[string]float64{}
	for _, e := range engines {
		page, err := scrape(ctx, e.url())
		if err != nil {
			return nil, err
		}
		if n, known := page.sum("vllm:nixl_num_kv_expired_reqs_total"); known {
			all[e.Name] = n
		}
	}
	return all, nil
}
