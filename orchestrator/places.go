package orchestrator

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"
)

// placeWait is how long a request waits for a place.
const placeWait = time.Second

// places limits the prompts that run at a time. Each may need a connection to an engine of each pool. The
// limit of client connections is not enough: an HTTP/2 client has many requests on one connection, and a
// batch has many prompts.
type places struct {
	all   *semaphore.Weighted // nil: there is no limit
	batch *semaphore.Weighted // part of all for the second and further prompts of batches
	full  func()              // called for each request that found no place
}

// newPlaces returns this number of places; 0 is no limit. refused returns the function that is called for
// each request without a place.
func newPlaces(most int, refused func(most int) func()) *places {
	p := &places{full: refused(most)}
	if most > 0 {
		p.all, p.batch = semaphore.NewWeighted(int64(most)), semaphore.NewWeighted(int64(most/2))
	}
	return p
}

// take waits for a place for one request. The caller gives the place back with leave. A free place is taken
// even if ctx has ended: so a client that closed its sending direction too early still gets an answer.
func (p *places) take(ctx context.Context) *failure {
	if p.all == nil || p.all.TryAcquire(1) {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, placeWait)
	defer cancel()
	switch {
	case p.all.Acquire(waiting, 1) == nil:
		return nil
	case ctx.Err() != nil:
		return goneFailure(ctx, site{phase: phaseAdmit})
	}
	p.full()
	return refuse(kindNoDescriptor, site{phase: phaseAdmit})
}

func (p *places) leave() {
	if p.all != nil {
		p.all.Release(1)
	}
}

// widen returns how many prompts of a batch may run at a time, at most wanted. The batch already has one
// place. It gets more places only if they are free now: a batch must not wait for a place while it has
// another. The caller calls narrow at the end.
func (p *places) widen(wanted int) (width int, narrow func()) {
	if p.all == nil {
		return wanted, func() {}
	}
	width = 1
	for width < wanted && p.batch.TryAcquire(1) {
		if !p.all.TryAcquire(1) {
			p.batch.Release(1)
			break
		}
		width++
	}
	return width, func() {
		p.all.Release(int64(width - 1))
		p.batch.Release(int64(width - 1))
	}
}
