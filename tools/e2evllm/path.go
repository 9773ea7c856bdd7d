package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// separate are the engines of pools, but each engine that splits has its own network namespace.
var separate = &fleet{"separate", func() []*engine {
	all := pools.engines()
	for _, e := range all {
		e.Apart = e.Role != ""
	}
	return all
}}

// pathWorkers send requests one after another while a path is cut and mended. pathRest is their pause.
const (
	pathWorkers = 4
	pathRest    = 50 * time.Millisecond
)

// outLimit is the longest time until the pair is out, and backLimit until it is in use again: one trial per
// pairTry, and the time of a trial. After vanished packets, TCP's retransmission waits as long as the cut
// lasted.
const (
	outLimit  = time.Minute
	pairTry   = 10 * time.Second
	backLimit = pairTry + 10*time.Second
)

// fewLost is how many of 1,000 requests may get a clear error, at least one.
const fewLost = 3

// path cuts the path from one prefill engine to one decode engine in their network: all packets vanish, or
// connections are reset and refused. Neither engine stops, and each works with the other two. The refusing
// cut comes last, because engines do not recover from it by themselves.
func path(ctx context.Context, s *stage) error {
	c := &cutting{faulting: &faulting{s: s, g: newGenerator(s.seed + 13000)}}
	defer func() { printFaults(os.Stdout, c.rows) }()
	if err := c.playAll(ctx, "auto", vanished); err != nil {
		return err
	}
	return c.playAll(ctx, "never", vanished, refused)
}

// cutting is the state of the act.
type cutting struct {
	*faulting
	local string // the setting local
}

// playAll makes these cuts, one after another, with a new router.
func (c *cutting) playAll(ctx context.Context, local string, cuts ...cut) (err error) {
	c.local = "local: " + local
	c.file, err = c.s.configure("path-"+local, c.local, evenSpeeds, "timeouts: {queue: 2m, probe: 5s}",
		fmt.Sprintf("health: {ejection: {max: %v}}", pairTry))
	if err != nil {
		return err
	}
	if c.router, err = c.s.serve(ctx, c.file); err != nil {
		return err
	}
	if err := c.warm(ctx); err != nil {
		return fmt.Errorf("%s, before any cut: %w", c.local, err)
	}
	for _, how := range cuts {
		if err := c.play(ctx, how); err != nil {
			return fmt.Errorf("%s, %s: %w", c.local, how, err)
		}
	}
	return c.router.end()
}

// pairOf names the two engines of a split request.
type pairOf struct{ prefill, decode string }

func (p pairOf) String() string { return p.prefill + " to " + p.decode }

var (
	cutPair = pairOf{"p0", "d0"}
	others  = []pairOf{{"p0", "d1"}, {"p1", "d0"}}
)

// play cuts the path during requests, and waits until the pair is out and the other pairs continue. Then it
// mends the path, and waits until the pair is back and splits.
func (c *cutting) play(ctx context.Context, how cut) error {
	c.row = &faultRow{fault: fmt.Sprintf("%v: %s, %s", cutPair, how, c.local)}
	c.rows = append(c.rows, c.row)
	c.broken = c.brokenLegs(ctx)
	stopFlow := c.flow(ctx, pathWorkers, pathRest)
	lasted, err := c.cutAndMend(ctx, how)
	reconnects := how == vanished || c.s.simulate
	if err == nil && reconnects {
		err = c.awaitBack(ctx, lasted)
	}
	stopFlow()
	err = errors.Join(err, c.landAll(ctx), c.wantFewLost(), c.nobodyElseOut(ctx))
	if err == nil && !reconnects {
		err = c.reconnect(ctx, lasted)
	}
	return errors.Join(err, c.after(ctx, leaseTime+2*time.Second))
}

// cutAndMend returns how long the path was cut.
func (c *cutting) cutAndMend(ctx context.Context, how cut) (time.Duration, error) {
	if err := c.awaitSplits(ctx, time.Now(), cutPair); err != nil {
		return 0, err
	}
	began := time.Now()
	say("path: %v is cut: %s", cutPair, how)
	err := c.s.net.cutPath(how, cutPair.prefill, cutPair.decode)
	if err == nil {
		err = c.awaitOut(ctx, began)
	}
	if err == nil {
		err = c.awaitSplits(ctx, time.Now(), others...)
	}
	err = errors.Join(err, c.s.net.mendPath(cutPair.prefill, cutPair.decode))
	say("path: %v is mended after %.1f s", cutPair, time.Since(began).Seconds())
	return time.Since(began), err
}

// reconnect restarts the decode engine after a cut that has reset connections: vLLM 0.32 does not reconnect
// to an engine after a handshake. Until the restart the pair must stay out.
func (c *cutting) reconnect(ctx context.Context, lasted time.Duration) error {
	if err := c.wantPair(ctx, "ejected"); err != nil {
		return err
	}
	if err := c.s.restart(ctx, c.s.engine(cutPair.decode)); err != nil {
		return err
	}
	if err := c.awaitUp(ctx, cutPair.decode); err != nil {
		return err
	}
	stopFlow := c.flow(ctx, pathWorkers, pathRest)
	err := c.awaitBack(ctx, lasted)
	stopFlow()
	return errors.Join(err, c.landAll(ctx))
}

// wantFewLost requires that hardly any request got a clear error. A wrong answer always fails the act.
func (c *cutting) wantFewLost() error {
	all, lost := 0, 0
	for _, p := range c.row.phases {
		all += p.exact + p.clearError + p.wrong
		lost += p.clearError
	}
	if lost > max(1, all*fewLost/1000) {
		return fmt.Errorf("%d of %d requests got an error", lost, all)
	}
	return nil
}

// nobodyElseOut requires that no replica was ejected for the broken path.
func (c *cutting) nobodyElseOut(ctx context.Context) error {
	n, err := c.router.series(ctx, "tandem_ejections_total")
	if err == nil && n > 0 {
		err = fmt.Errorf("%v replicas were ejected for a path", n)
	}
	return err
}

// awaitSplits waits until each of the pairs has split a request that arrived after since.
func (c *cutting) awaitSplits(ctx context.Context, since time.Time, pairs ...pairOf) error {
	return eventually(ctx, 30*time.Second, func() error {
		records, err := readRecords(ctx, c.router)
		if err != nil {
			return err
		}
		for _, p := range pairs {
			if !slices.ContainsFunc(records, func(r record) bool {
				well := r.Time.After(since) && r.Mode == "split" && r.Outcome == "ok"
				return well && r.Prefill == p.prefill && r.Decode == p.decode
			}) {
				return fmt.Errorf("nothing is split from %v", p)
			}
		}
		return nil
	})
}

// awaitOut waits until the router keeps the pair out.
func (c *cutting) awaitOut(ctx context.Context, began time.Time) error {
	err := eventually(ctx, outLimit, func() error { return c.wantPair(ctx, "ejected") })
	if err == nil {
		say("path: %v is out after %.1f s", cutPair, time.Since(began).Seconds())
		c.row.remark("out after %.1f s", time.Since(began).Seconds())
	}
	return err
}

// awaitBack waits until the pair is in use and splits again. The pair's path was cut for this long.
func (c *cutting) awaitBack(ctx context.Context, lasted time.Duration) error {
	mended := time.Now()
	if err := eventually(ctx, backLimit+lasted, func() error { return c.wantPair(ctx, "") }); err != nil {
		return err
	}
	took := time.Since(mended)
	say("path: %v is back after %.1f s", cutPair, took.Seconds())
	c.row.remark("cut for %.1f s, back after %.1f s", lasted.Seconds(), took.Seconds())
	return c.awaitSplits(ctx, time.Now(), cutPair)
}

// wantPair requires the pair to be ejected, or with "" to be in normal use.
func (c *cutting) wantPair(ctx context.Context, state string) error {
	body, err := get(ctx, c.router.admin+"/debug/replicas")
	if err != nil {
		return err
	}
	var page struct {
		Pairs []struct {
			Pair  struct{ Prefill, Decode string }
			State string
			Cause string
		}
	}
	if err := json.Unmarshal(body, &page); err != nil {
		return fmt.Errorf("/debug/replicas: %w: %.200s", err, body)
	}
	for _, p := range page.Pairs {
		out := p.State != "in use"
		switch {
		case out && (pairOf{p.Pair.Prefill, p.Pair.Decode}) != cutPair:
			return fmt.Errorf("%+v is out, although its path works", p)
		case out && state == "":
			return fmt.Errorf("%v is still out: %+v", cutPair, p)
		case p.State == state:
			return nil
		}
	}
	if state != "" {
		return fmt.Errorf("%v is not %s: %+v", cutPair, state, page.Pairs)
	}
	return nil
}
