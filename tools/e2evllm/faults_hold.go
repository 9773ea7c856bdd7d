package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// holdBetweenLegs sends n requests and stops r when r has planned them. It returns how many requests have
// been prefilled then; r has not read the answers of their first legs. A request is missing only if its leg 1
// had not left r yet.
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
	return min(after-before, float64(n)), err // other routers try pairs that failed with prompts of their own
}

// prefills is how many requests the prefill engines have answered.
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

// prefilled returns when the prefill engines of the names, which have just been let go, have answered what
// they were asked.
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
		if calm++; calm < 5 { // what has just been let go may not have looked at its sockets yet
			return errors.New("the prefill engines have only just finished")
		}
		return nil
	})
}

// holdAllPhases leaves p0, d0 and d1 stopped: streams have begun, blocks of p0 wait to be pulled, and p0 has
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

// moreStreams is how many streams beyond n are started at most until the victim has one. A router that takes
// the victim's link for slow fills the other decode engine first, which has room for some ten.
const moreStreams = 14

// holdStreams starts n long streams or more, some on the victim, and returns when all have begun.
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

// lastPlan is what the router decided last, with what each plan would have cost.
func lastPlan(ctx context.Context, r *router) string {
	body, err := get(ctx, r.admin+"/debug/decisions?n=1")
	if err != nil {
		return err.Error()
	}
	return string(body)
}

// holdSecondLegs returns when n or more requests wait for stopped decode engines. The victims are among these
// engines: they have prefilled some requests, or have been sent some.
func (f *faulting) holdSecondLegs(ctx context.Context, n int, victims ...string) error {
	before := map[string]float64{}
	for _, name := range victims {
		before[name] = f.keeps(ctx, name)
	}
	f.freeze("p0", "p1") // so that there is something queued, which the router spreads
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
				return fmt.Errorf("no leg 2 has to do with %s: the fault would find nothing", name)
			}
		}
		return f.noLeases(ctx, f.router, "prefill")
	})
}

// keeps is what an engine keeps for requests: a prefill engine blocks, a decode engine leases of the router.
// 0 also where that cannot be known.
func (f *faulting) keeps(ctx context.Context, name string) float64 {
	if name[0] == 'p' {
		used, _ := f.s.engine(name).usage(ctx)
		return used
	}
	n, _ := f.router.series(ctx, "tandem_leases", fmt.Sprintf("replica=%q", name))
	return n
}

// holdFirstLegs returns when n or more requests have been planned, the victim's among them, which stands
// still.
func (f *faulting) holdFirstLegs(ctx context.Context, n int, victim string) error {
	f.hold(ctx, f.router, "leg 1 in flight", n)
	return f.holdMore(ctx, "leg 1 in flight",
		func() error { return f.hasLeases(ctx, f.router, 1, fmt.Sprintf("replica=%q", victim)) })
}

// holdMore sends one more request after another until they are where they shall be; the router chooses where
// that is.
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
