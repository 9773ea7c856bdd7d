package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// idleLimit is how soon after the last answer nothing may be left in an engine. Leases that nobody gives
// back stay for longer.
const idleLimit = 2 * time.Second

// awaitIdle waits until no engine holds a block for a request, and returns how long that took.
func (s *stage) awaitIdle(ctx context.Context, limit time.Duration) (time.Duration, error) {
	begun := time.Now()
	err := noneRunsOut(ctx, s.engines, func() error {
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
	})
	return time.Since(begun), err
}

// idle says what the engine does or keeps for requests.
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

// noneRunsOut wants no lease of the engines to run out while wait lasts: that frees blocks, too, and they
// would seem to have been given back.
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

// runOut is how many leases of each engine have run out so far. An engine that hands nothing over does not
// say.
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
