package orchestrator

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"
)

// placeWait is how long a request waits for a place.
const placeWait = time.Second

// places bounds the prompts that run at a time. Each may need a connection to an engine of each pool. An
// HTTP/2 client has many requests on one connection, and a batch has many prompts. So the bound of client
// connections is not enough.
type places struct {
	all   *semaphore.Weighted // nil: there is no limit
	batch *semaphore.Weighted // the part of all for the second and further prompts of batches
	full  func()              // told of each request that found no place
}

// newPlaces makes so many places; 0 is no limit. refused returns what is called for each request without a
// place.
func newPlaces(most int, refused func(most int) func()) *places {
	p := &places{full: refused(most)}
	if most > 0 {
		p.all, p.batch = semaphore.NewWeighted(int64(most)), semaphore.NewWeighted(int64(most/2))
	}
	return p
}

// take waits for a place for one request, which the caller gives back with leave. A place that is free is
// taken although ctx has ended: a client that closed its sending side too early still gets an answer.
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

// widen returns how many prompts of a batch may run at a time, wanted at most. The batch has a place for one.
// It gets more places if there are any now: a batch never waits for a place while it holds another. The
// caller calls narrow at the end.
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
