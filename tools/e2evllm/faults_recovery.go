package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// wantContinued wants streams to have gone on elsewhere since before, when that many had.
func (f *faulting) wantContinued(ctx context.Context, before float64) error {
	now, err := f.router.continued(ctx)
	if err == nil && now == before {
		err = errors.New("mid-stream: no stream went on elsewhere, so that the fault concerned none")
	}
	f.row.remark("%v streams went on elsewhere", now-before)
	return err
}

// continued is how many streams have gone on at another engine, by the router.
func (r *router) continued(ctx context.Context) (float64, error) {
	return r.series(ctx, "tandem_continued_total", label("outcome", "continued"))
}

// comeBack waits until the engines, which have been started, are used, and their old blocks are forgotten.
// Meanwhile it keeps this many workers sending requests.
func (f *faulting) comeBack(ctx context.Context, workers int, names ...string) error {
	stopFlow := f.flow(ctx, workers, time.Second) // more would take the cores from those that start
	var back []*engine
	for _, name := range names {
		back = append(back, f.s.engine(name))
	}
	err := awaitHealthy(ctx, back)
	for _, name := range names {
		err = errors.Join(err, f.awaitUp(ctx, name))
	}
	if workers > 0 && err == nil {
		err = f.awaitUsed(ctx, back)
	}
	stopFlow()
	return errors.Join(err, f.landAll(ctx), f.row.wantExact(), f.after(ctx, 2*time.Second),
		f.wantTruePredictions(ctx))
}

// awaitUsed waits until the engines have answered something.
func (f *faulting) awaitUsed(ctx context.Context, engines []*engine) error {
	return eventually(ctx, 30*time.Second, func() error {
		for _, e := range engines {
			if n, err := e.metric(ctx, "vllm:generation_tokens_total{"); err != nil || n[0] == 0 {
				return errors.Join(err, fmt.Errorf("%s is ready and not used", e.Name))
			}
		}
		return nil
	})
}

// awaitUp waits until the router uses the engine and follows its events.
func (f *faulting) awaitUp(ctx context.Context, name string) error {
	return eventually(ctx, 15*time.Second, func() error {
		up, err := f.router.series(ctx, "tandem_replica_up", fmt.Sprintf("replica=%q", name))
		live, errLive := f.router.series(ctx, "tandem_index_trust", fmt.Sprintf("replica=%q", name), `state="live"`)
		if err := errors.Join(err, errLive); err != nil {
			return err
		}
		if up != 1 || live != 1 {
			return fmt.Errorf("%s answers, and to the router it is up %v, its events live %v", name, up, live)
		}
		return nil
	})
}

// wantDown waits until the router knows that the engine is dead.
func (f *faulting) wantDown(ctx context.Context, name string) error {
	return eventually(ctx, 5*time.Second, func() error {
		up, err := f.router.series(ctx, "tandem_replica_up", fmt.Sprintf("replica=%q", name))
		if err == nil && up != 0 {
			err = fmt.Errorf("%s was killed, and the router calls it usable", name)
		}
		return err
	})
}

// overwrite fills the cache of an engine with other prompts, so that blocks which were freed are another's.
func (f *faulting) overwrite(ctx context.Context, name string) error {
	e := f.s.engine(name)
	expired, err := e.metric(ctx, "vllm:nixl_num_kv_expired_reqs_total{")
	if err != nil {
		return err
	}
	if expired[0] == 0 {
		return fmt.Errorf("no lease on %s has run out, so that nothing was tried", name)
	}
	for range 5 {
		q := f.completion(29*blockTokens, 1)
		if t := tell(ctx, e.url(), q, func() {}); t.status != 200 {
			return fmt.Errorf("%s, asked plainly: %+v", name, t)
		}
	}
	return nil
}

// flow sends requests one after another until stop is called. It has this many workers, each with a rest
// after each request. stop returns when all requests have landed.
func (f *faulting) flow(ctx context.Context, workers int, rest time.Duration) (stop func()) {
	end := make(chan struct{})
	var all sync.WaitGroup
	landed := make([][]*flight, workers)
	for w := range workers {
		g := newGenerator(f.s.seed + 8000 + uint64(100*len(f.rows)+10*len(f.flying)+w))
		all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-end:
					return
				case <-ctx.Done():
					return
				default:
				}
				one := launch(ctx, f.router.front, flowing, faultRequest(g, i))
				landed[w] = append(landed[w], one)
				one.land()
				select {
				case <-end:
				case <-time.After(rest):
				}
			}
		})
	}
	return sync.OnceFunc(func() {
		close(end)
		all.Wait()
		f.flying = append(f.flying, slices.Concat(landed...)...)
	})
}

// pause lets time pass where time itself is what is tried.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
