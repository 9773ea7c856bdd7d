package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// playKills kills decode engines in turn and restarts them together. Each round kills all engines but one
// under the same streams, or as many as remain to be killed.
func (d *dying) playKills(ctx context.Context) error {
	missed := 0
	for done := 0; done < d.s.kills; {
		victims := d.victims(min(len(d.decoders)-1, d.s.kills-done))
		found, err := d.killRound(ctx, victims)
		if err != nil {
			return fmt.Errorf("%s killed, after %d kills: %w", strings.Join(victims, " and "), done, err)
		}
		missed += len(victims) - found
		done += len(victims)
		say("death: %d of %d kills, all answers exact", done, d.s.kills)
	}
	d.row.remark("engines were killed %d times, %d times without a stream", d.s.kills, missed)
	if d.s.kills > 0 && missed*2 > d.s.kills {
		return fmt.Errorf("%d of %d kills found no stream, so little was tested", missed, d.s.kills)
	}
	return nil
}

// killRound starts answers, kills the victims one after another, and requires every answer to be exact. found
// is the number of victims whose streams continued on another engine.
func (d *dying) killRound(ctx context.Context, victims []string) (found int, err error) {
	begun, err := d.begin(ctx)
	if err != nil {
		return 0, err
	}
	for _, victim := range victims {
		moved, err := d.killOne(ctx, victim, begun)
		if err != nil {
			return 0, err
		}
		if moved > 0 {
			found++
		}
	}
	var back []*engine
	for _, victim := range victims {
		back = append(back, d.s.engine(victim))
		err = errors.Join(err, d.s.startEngine(d.s.engine(victim)))
	}
	if err = errors.Join(err, d.landAll(ctx), d.row.wantExact()); err != nil {
		return found, err
	}
	if err := awaitHealthy(ctx, back); err != nil {
		return found, err
	}
	for _, victim := range victims {
		err = errors.Join(err, d.awaitUp(ctx, victim), d.awaitTried(ctx, victim))
	}
	return found, errors.Join(err, d.shakeHands(ctx))
}

// awaitTried waits until the router has tried an engine that it had ejected. Otherwise the next answers that
// lose their engine may have no other engine.
func (d *dying) awaitTried(ctx context.Context, name string) error {
	return eventually(ctx, 2*time.Minute, func() error {
		seen, err := readReplicas(ctx, d.router)
		if err != nil {
			return err
		}
		for _, state := range seen[name].States {
			if strings.HasPrefix(state.State, "ejected") {
				return fmt.Errorf("%s is up again, but still %s: %s", name, state.State, state.Cause)
			}
		}
		return nil
	})
}

// killOne kills the engine, and returns when every answer has continued or ended. moved is the number of
// answers that continued on another engine. An answer may lose two engines in this way, but not two before
// its first content: then the router would blame the request (docs/decisions/0005).
func (d *dying) killOne(ctx context.Context, victim string, begun []*flight) (moved float64, err error) {
	before, err := d.router.continued(ctx)
	if err := errors.Join(err, d.s.engine(victim).kill()); err != nil {
		return 0, err
	}
	had := map[*flight]int64{}
	for _, one := range begun {
		had[one] = one.pieces.Load()
	}
	err = eventually(ctx, time.Minute, func() error {
		for _, one := range begun {
			if one.flies() && one.pieces.Load() == had[one] {
				return fmt.Errorf("%s was killed, and an answer (%s) does not continue", victim, one.kind)
			}
		}
		return nil
	})
	now, errNow := d.router.continued(ctx)
	return now - before, errors.Join(err, errNow)
}
