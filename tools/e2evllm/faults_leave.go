package main

import (
	"context"
	"errors"
	"sync"
	"time"
)

// leavers is the number of clients that leave in mid-request. leaving is the number at a time.
const (
	leavers = 48
	leaving = 4
)

// clientsLeave lets clients leave at every moment of a request: during the prefill, between the legs, during
// the transfer, during the answer. Nothing of their requests may remain, and no lease may have to expire.
func clientsLeave(ctx context.Context, f *faulting) error {
	whole := f.launch(ctx, f.router, "before, to its end", f.leaver(0))
	if err := f.landAll(ctx); err != nil {
		return err
	}
	living := f.living(ctx)
	var left int
	err := noneRunsOut(ctx, living, func() error {
		left = f.leave(ctx, 3*whole.took/2)
		return f.awaitBooks(ctx, living, idleLimit, time.Now())
	})
	f.row.remark("%d of %d clients left within %.1f s", left, leavers, 1.5*whole.took.Seconds())
	if 2*left < leavers {
		err = errors.Join(err,
			errors.New("most clients had their answer before they could leave: nothing was tested"))
	}
	return errors.Join(err, f.checkCaches(ctx), f.checkCore(ctx))
}

// leave sends the requests and returns the number of clients that left. Each client leaves a little later
// than the one before.
func (f *faulting) leave(ctx context.Context, until time.Duration) (left int) {
	var mu sync.Mutex
	var all sync.WaitGroup
	seats := make(chan struct{}, leaving)
	for i := range leavers {
		q := f.leaver(i)
		seats <- struct{}{}
		all.Go(func() {
			defer func() { <-seats }()
			own, cancel := context.WithTimeout(ctx, until*time.Duration(i+1)/leavers)
			defer cancel()
			if landed := tell(own, f.router.front, q, func() {}); landed.canceled {
				mu.Lock()
				defer mu.Unlock()
				left++
			}
		})
	}
	all.Wait()
	return left
}

// leaver is the i-th request whose client leaves. Every other request is a stream.
func (f *faulting) leaver(i int) request {
	q := f.completion(5*blockTokens, 24)
	if i%2 == 1 {
		q.body["stream"], q.body["stream_options"] = true, map[string]any{"include_usage": true}
	}
	return q
}
