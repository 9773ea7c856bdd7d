package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// wantContinued requires that streams have continued on another engine since before, if so many had.
func (f *faulting) wantContinued(ctx context.Context, before float64) error {
	now, err := f.router.continued(ctx)
	if err == nil && now == before {
		err = errors.New("mid-stream: no stream continued on another engine, so the fault hit none")
	}
	f.row.remark("%v streams continued on another engine", now-before)
	return err
}

// continued is the number of streams that have continued on another engine, by the router's metrics.
func (r *router) continued(ctx context.Context) (float64, error) {
	return r.series(ctx, "tandem_continued_total", label("outcome", "continued"))
}

// comeBack waits until the router uses the restarted engines and has forgotten their old blocks. Meanwhile it
// keeps this many workers sending requests.
func (f *faulting) comeBack(ctx context.Context, workers int, names ...string) error {
	stopFlow := f.flow(ctx, workers, time.Second) // more workers would take the cores from starting engines
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

// awaitUsed waits until each engine has answered a request.
func (f *faulting) awaitUsed(ctx context.Context, engines []*engine) error {
	return eventually(ctx, 30*time.Second, func() error {
		for _, e := range engines {
			if n, err := e.metric(ctx, "vllm:generation_tokens_total{"); err != nil || n[0] == 0 {
				return errors.Join(err, fmt.Errorf("%s is ready but gets no requests", e.Name))
			}
		}
		return nil
	})
}

// awaitUp waits until the router uses the engine and follows its events.
func (f *faulting) awaitUp(ctx context.Context, name string) error {
	return eventually(ctx, 15*time.Second, func() error {
		up, err := f.router.series(ctx, "tandem_replica_up", fmt.Sprintf("replica=%q", name))
		live, errLive := f.router.series(ctx, "tandem_index_trust", fmt.Sprintf("replica=%q", name),
			`state="live"`)
		if err := errors.Join(err, errLive); err != nil {
			return err
		}
		if up != 1 || live != 1 {
			return fmt.Errorf("%s answers; by the router it is up %v, its events live %v", name, up, live)
		}
		return nil
	})
}

// wantDown waits until the router knows that the engine is dead.
func (f *faulting) wantDown(ctx context.Context, name string) error {
	return eventually(ctx, 5*time.Second, func() error {
		up, err := f.router.series(ctx, "tandem_replica_up", fmt.Sprintf("replica=%q", name))
		if err == nil && up != 0 {
			err = fmt.Errorf("%s was killed, but the router reports it as usable", name)
		}
		return err
	})
}

// overwrite fills the cache of an engine with other prompts, so that freed blocks get other content.
func (f *faulting) overwrite(ctx context.Context, name string) error {
	e := f.s.engine(name)
	expired, err := e.metric(ctx, "vllm:nixl_num_kv_expired_reqs_total{")
	if err != nil {
		return err
	}
	if expired[0] == 0 {
		return fmt.Errorf("no lease on %s has expired, so nothing was tested", name)
	}
	for range 5 {
		q := f.completion(29*blockTokens, 1)
		if t := tell(ctx, e.url(), q, func() {}); t.status != 200 {
			return fmt.Errorf("%s, asked directly: %+v", name, t)
		}
	}
	return nil
}

// flow sends requests one after another until stop is called. It has this many workers, each with a pause
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

// pause lets time pass if the passing of time is the test.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
