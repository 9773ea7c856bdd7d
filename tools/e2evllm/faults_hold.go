package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// holdBetweenLegs sends n requests and stops r as soon as r has planned them. It returns the number of
// requests that are prefilled then. r has not read the answers of their first legs. A request is missing only
// if its leg 1 had not left r yet.
func (f *faulting) holdBetweenLegs(ctx context.Context, r *router, phase string, n int) (float64, error) {
	before, err := f.prefills(ctx)
	aged, errAged := r.aged(ctx)
	if err := errors.Join(err, errAged); err != nil {
		return 0, err
	}
	f.aged = aged
	f.freeze("p0", "p1")
	f.hold(ctx, r, phase, n)
	if err := eventually(ctx, 15*time.Second,
		func() error { return f.hasLeases(ctx, r, n, `pool="prefill"`) }); err != nil {
		return 0, err
	}
	r.process.freeze()
	f.unfreeze("p0", "p1")
	if err := f.prefilled(ctx, "p0", "p1"); err != nil {
		return 0, err
	}
	after, err := f.prefills(ctx)
	return min(after-before, float64(n)), err // other routers send prompts of their own as trials
}

// prefills is the number of requests that the prefill engines have answered.
func (f *faulting) prefills(ctx context.Context) (float64, error) {
	sum := 0.0
	for _, name := range []string{"p0", "p1"} {
		byReason, err := f.s.engine(name).metric(ctx, "vllm:request_success_total{")
		if err != nil {
			return 0, err
		}
		for _, n := range byReason {
			sum += n
		}
	}
	return sum, nil
}

// prefilled returns when the named prefill engines, which have just been unfrozen, have answered all their
// requests.
func (f *faulting) prefilled(ctx context.Context, names ...string) error {
	calm := 0
	return eventually(ctx, 20*time.Second, func() error {
		kept := 0.0
		for _, name := range names {
			e := f.s.engine(name)
			runs, err := e.metric(ctx, "vllm:num_requests_running{")
			waits, errWaits := e.metric(ctx, "vllm:num_requests_waiting{")
			used, errUsed := e.usage(ctx)
			if err := errors.Join(err, errWaits, errUsed); err != nil {
				return err
			}
			if runs[0]+waits[0] > 0 {
				calm = 0
				return fmt.Errorf("%s still runs %v of the held prefills", name, runs[0]+waits[0])
			}
			kept += used
		}
		if kept == 0 {
			return errors.New("no prefill engine keeps blocks: nothing is between the legs")
		}
		if calm++; calm < 5 { // an engine that was just unfrozen may not have read its sockets yet
			return errors.New("the prefill engines have only just finished")
		}
		return nil
	})
}

// holdAllPhases leaves p0, d0 and d1 stopped: streams have begun, blocks of p0 wait for a pull, and p0 has
// prompts to prefill.
func (f *faulting) holdAllPhases(ctx context.Context) error {
	if err := f.holdStreams(ctx, 2, "d0"); err != nil {
		return err
	}
	f.freeze("d0", "d1")
	if err := f.holdSecondLegs(ctx, 4, "p0"); err != nil {
		return err
	}
	f.freeze("p0")
	return f.holdFirstLegs(ctx, 4, "p0")
}

// moreStreams is the largest number of streams beyond n that are started until the victim has one. A router
// that believes the victim's link to be slow fills the other decode engine first, which has room for about
// ten.
const moreStreams = 14

// holdStreams starts n or more long streams, some on the victim, and returns when all have begun.
func (f *faulting) holdStreams(ctx context.Context, n int, victim string) error {
	for i := range n + moreStreams {
		if i >= n && f.keeps(ctx, victim) > 0 {
			return nil
		}
		q := f.completion(60, 160)
		q.body["stream"], q.body["stream_options"] = true, map[string]any{"include_usage": true}
		if err := awaitFirst(ctx, f.launch(ctx, f.router, "mid-stream", q), 20*time.Second); err != nil {
			return err
		}
	}
	return fmt.Errorf("none of %d streams comes from %s: the fault would find nothing; the last plan: %s",
		n+moreStreams,
		victim, lastPlan(ctx, f.router))
}

// lastPlan is the router's newest decision, with the cost of each plan.
func lastPlan(ctx context.Context, r *router) string {
	body, err := get(ctx, r.admin+"/debug/decisions?n=1")
	if err != nil {
		return err.Error()
	}
	return string(body)
}

// holdSecondLegs returns when n or more requests wait for stopped decode engines. Each victim takes part: it
// has prefilled some of the requests, or has received some.
func (f *faulting) holdSecondLegs(ctx context.Context, n int, victims ...string) error {
	before := map[string]float64{}
	for _, name := range victims {
		before[name] = f.keeps(ctx, name)
	}
	f.freeze("p0", "p1") // so that requests queue, and the router spreads them
	f.hold(ctx, f.router, "leg 2 sent", n)
	err := eventually(ctx, 15*time.Second,
		func() error { return f.hasLeases(ctx, f.router, n, `pool="prefill"`) })
	f.unfreeze("p0", "p1")
	if err != nil {
		return err
	}
	return f.holdMore(ctx, "leg 2 sent", func() error {
		for _, name := range victims {
			if f.keeps(ctx, name) <= before[name] {
				return fmt.Errorf("no leg 2 involves %s: the fault would find nothing", name)
			}
		}
		return f.noLeases(ctx, f.router, "prefill")
	})
}

// keeps is what an engine keeps for requests: a prefill engine blocks, a decode engine leases of the router.
// It is 0 if unknown.
func (f *faulting) keeps(ctx context.Context, name string) float64 {
	if name[0] == 'p' {
		used, _ := f.s.engine(name).usage(ctx)
		return used
	}
	n, _ := f.router.series(ctx, "tandem_leases", fmt.Sprintf("replica=%q", name))
	return n
}

// holdFirstLegs returns when n or more requests have been planned, some on the victim, which stands
// still.
func (f *faulting) holdFirstLegs(ctx context.Context, n int, victim string) error {
	f.hold(ctx, f.router, "leg 1 in flight", n)
	return f.holdMore(ctx, "leg 1 in flight",
		func() error { return f.hasLeases(ctx, f.router, 1, fmt.Sprintf("replica=%q", victim)) })
}

// holdMore sends one request after another until they are in the intended places. The router chooses the
// places.
func (f *faulting) holdMore(ctx context.Context, phase string, there func() error) error {
	err := eventually(ctx, 3*time.Second, there)
	for range 8 {
		if err == nil {
			return nil
		}
		f.launch(ctx, f.router, phase, f.completion(5*blockTokens, 4))
		err = eventually(ctx, time.Second, there)
	}
	return err
}
