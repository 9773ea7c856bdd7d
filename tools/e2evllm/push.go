package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// pushing are the engines of pools, whose prefill engines write the blocks into the decode engines.
var pushing = &fleet{"pushing", func() []*engine { return wiredBy(pushes, pools.engines()) }}

// pushRequests is the number of requests of each phase.
const pushRequests = 48

// push compares split answers, and then plays the faults that leave a decode leg waiting for blocks.
func push(ctx context.Context, s *stage) error {
	alone := phase{
		name: "pushed, one at a time", local: "never", requests: pushRequests, workers: 1,
		seed: s.seed + 16000, predicted: 0.95, kinds: everyKind, expires: true,
	}
	beside := alone
	beside.name, beside.workers = "pushed, eight at a time", 8
	beside.seed, beside.predicted = s.seed+17000, 0.9
	f := &faulting{s: s, g: newGenerator(s.seed + 18000), pushed: true}
	return inOrder(ctx,
		step{"the doctor", func() error { return consult(ctx, s) }},
		step{"split answers", func() error { return s.playPhases(ctx, alone, beside) }},
		step{"faults", func() error { return f.playAll(ctx, "push", pushScenes(s.simulate)) }},
	)
}

// pushScenes are played with p0, which must be off probation when it is killed. The core of a simulated
// engine is no process of its own, and a simulated decode engine notices the end of a prefill engine.
func pushScenes(simulated bool) []scene {
	all := []scene{
		{"", "clients leave while decode waits for blocks", leaveWaiting},
		{"", "prefill stands still, and its legs are given up", prefillGivenUp},
		{"", "the cores of decode engines stand still beyond the lease", rescued},
		{"", "prefill is killed while decode waits for its blocks", prefillDiesWaiting},
		{"", "decode is killed; both come back under load", decodeDies},
	}
	if simulated {
		all = slices.Delete(all, 2, 4)
	}
	return all
}

// holdWaiting sends requests until d0 waits for blocks of p0, which stands still. No other decode engine has
// requests. The prompts begin with one that p0 has cached, so that the router chooses p0.
func (f *faulting) holdWaiting(ctx context.Context) error {
	known := f.g.ids(16 * blockTokens)
	if t := tell(ctx, f.s.engine("p0").url(), plainIDs(known, 1), func() {}); t.status != 200 {
		return fmt.Errorf("p0, asked directly: %+v", t)
	}
	f.freeze("d0", "d1")
	err := errors.New("nothing was sent")
	for i := 0; i < 10 && (i < 4 || err != nil); i++ {
		f.launch(ctx, f.router, "leg 2 waits", plainIDs(slices.Concat(known, f.g.ids(9+i)), 4))
		err = eventually(ctx, time.Second, func() error {
			flying, err := f.flyingTo(ctx, "d0")
			if err == nil && !slices.Contains(flying, "p0") {
				err = fmt.Errorf("d0 has requests of %v, and none of p0", flying)
			}
			return errors.Join(err, f.noLeases(ctx, f.router, "prefill"))
		})
	}
	f.unfreeze("d1")
	err = errors.Join(err, eventually(ctx, 20*time.Second, func() error {
		flying, err := f.flyingTo(ctx, "d1")
		if err == nil && len(flying) > 0 {
			err = fmt.Errorf("d1 still has requests of %v", flying)
		}
		return err
	}))
	f.freeze("p0")
	f.unfreeze("d0")
	return errors.Join(err, eventually(ctx, 20*time.Second, func() error {
		waits, err := f.s.engine("d0").metric(ctx, "vllm:num_requests_waiting{")
		if err == nil && sumOf(waits) == 0 {
			err = errors.New("d0 does not wait for blocks")
		}
		return err
	}))
}

// flyingTo are the prefill engines of all requests in flight that were planned with this decode engine.
func (f *faulting) flyingTo(ctx context.Context, decode string) (from []string, err error) {
	body, err := get(ctx, f.router.admin+"/debug/in_flight")
	if err != nil {
		return nil, err
	}
	var all []struct{ Prefill, Decode string }
	err = json.Unmarshal(body, &all)
	for _, one := range all {
		if one.Decode == decode {
			from = append(from, one.Prefill)
		}
	}
	return from, err
}

// leaveWaiting lets all clients leave whose decode legs wait. When the prefill engine continues, all blocks
// become free.
func leaveWaiting(ctx context.Context, f *faulting) error {
	own, leave := context.WithCancel(ctx)
	defer leave()
	if err := f.holdWaiting(own); err != nil {
		return err
	}
	leave()
	left := 0
	for _, one := range f.flying {
		if one.land().canceled {
			left++
		}
	}
	f.row.remark("%d of %d clients left", left, len(f.flying))
	f.flying = nil
	if left == 0 {
		return errors.New("no client left, so nothing was tested")
	}
	pause(ctx, 2*time.Second)
	f.unfreeze("p0")
	return f.wantRescues(ctx, 1)
}

// wantRescues waits until the router has sent this many prefill legs again, with success.
func (f *faulting) wantRescues(ctx context.Context, n float64) error {
	return eventually(ctx, 10*time.Second, func() error {
		sent, err := f.router.series(ctx, "tandem_rescues_total", `result="prefilled"`)
		if err == nil && sent < n {
			err = fmt.Errorf("%v prefill legs were sent again, want %v", sent, n)
		}
		return err
	})
}

// rescued stops the cores of the decode engines for longer than the lease, while their API processes answer.
// Their legs come too late for the blocks of their prompts. They would wait for ever, but the router has the
// prompts prefilled again.
func rescued(ctx context.Context, f *faulting) error {
	for _, name := range []string{"d0", "d1"} {
		if err := f.s.engine(name).freezeCore(); err != nil {
			return err
		}
	}
	f.hold(ctx, f.router, "leg 2 waits", 6)
	if err := f.allPrefilled(ctx); err != nil {
		return err
	}
	sent, err := f.router.series(ctx, "tandem_rescues_total")
	pause(ctx, leaseTime+2*time.Second)
	f.unfreeze("d0", "d1")
	return errors.Join(err, f.landAll(ctx), f.row.wantExact(), f.wantRescues(ctx, sent+1), f.after(ctx, 0))
}

// prefillGivenUp stops p0 until the router has given up the prefill legs there, and another engine has
// prefilled their prompts.
func prefillGivenUp(ctx context.Context, f *faulting) error {
	f.freeze("p0")
	if err := f.holdFirstLegs(ctx, 4, "p0"); err != nil {
		return err
	}
	err := errors.Join(f.landAll(ctx), f.row.wantExact())
	f.unfreeze("p0")
	return errors.Join(err, f.awaitUp(ctx, "p0"))
}

// prefillDiesWaiting kills p0 while d0 waits for its blocks. Nobody can free the blocks of d0 then. The log
// must name d0, and another pair must answer. The next scene restarts d0, which frees its blocks.
func prefillDiesWaiting(ctx context.Context, f *faulting) error {
	if err := f.holdWaiting(ctx); err != nil {
		return err
	}
	p0 := f.s.engine("p0")
	if err := p0.kill(); err != nil {
		return err
	}
	err := errors.Join(f.landAll(ctx), f.wantDown(ctx, "p0"), f.row.wantExact(), f.wantNamed("d0"))
	return errors.Join(err, f.s.startEngine(p0))
}

// wantNamed requires that the log names the decode engine that keeps blocks until its restart.
func (f *faulting) wantNamed(name string) error {
	lines := slices.Collect(strings.Lines(f.router.process.logTail(10000)))
	if !slices.ContainsFunc(lines, func(l string) bool {
		keeps := strings.Contains(l, "may keep blocks until it is restarted")
		return keeps && strings.Contains(l, "decode="+name)
	}) {
		return fmt.Errorf("the log does not name %s, whose blocks nobody can free", name)
	}
	return nil
}
