package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// deaths is the number of greedy streams that must lose their decode engine in mid-stream. The act kills
// engines -kills times. If too few streams were hit, it resets connections, which looks the same to a router.
const (
	deaths     = 30
	usualKills = 2
)

// death kills decode engines during greedy answers. Each stream continues on another engine, and other
// answers are computed again. The clients get the answer of one engine, to the last byte, with usage and
// finish reason.
func death(ctx context.Context, s *stage) (err error) {
	d := &dying{decoders: []string{"d0", "d1"}, relays: map[string]*relay{}}
	if s.kills > usualKills { // then engines are killed and restarted in pairs
		d.decoders = append(d.decoders, "d2")
		end, err := s.admit(ctx, &engine{Name: "d2", Role: consumer, Blocks: decodeBlocks, Flags: atOnce})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, end()) }()
	}
	urls := map[string]string{}
	for _, name := range d.decoders {
		r, err := relayTo(s.engine(name).Port)
		if err != nil {
			return err
		}
		d.relays[name], urls[name] = r, r.url()
		defer r.close()
	}
	file, err := s.configureAt("death", urls, "local: never", evenSpeeds, "timeouts: {queue: 2m, probe: 5s}",
		"retry: {min: 64, attempts: 5, continue: greedy}")
	if err != nil {
		return err
	}
	d.faulting = &faulting{s: s, g: newGenerator(s.seed + 11000), file: file}
	defer func() { printFaults(os.Stdout, d.rows) }()
	if d.router, err = s.serve(ctx, file); err != nil {
		return err
	}
	if err := d.shakeHands(ctx); err != nil {
		return err
	}
	return errors.Join(d.play(ctx), d.router.end())
}

// admit starts one more engine and waits for it. end removes it again.
func (s *stage) admit(ctx context.Context, e *engine) (end func() error, err error) {
	if err := s.startEngine(e); err != nil {
		return nil, err
	}
	usual := s.engines
	s.engines = append(slices.Clip(usual), e)
	end = func() error {
		s.engines = usual
		return errors.Join(e.kill(), s.note())
	}
	if err := awaitHealthy(ctx, s.engines); err != nil {
		return nil, errors.Join(err, end())
	}
	return end, nil
}

// dying is the state of the act.
type dying struct {
	*faulting
	decoders []string // all decode engines, the next victims first
	relays   map[string]*relay
}

func (d *dying) play(ctx context.Context) error {
	d.row = &faultRow{fault: "a decode engine dies in mid-stream"}
	d.rows = append(d.rows, d.row)
	err := d.playKills(ctx)
	if err == nil {
		err = d.playResets(ctx)
	}
	lived, errLived := d.router.continued(ctx)
	d.row.remark("%v streams lost their engine and continued", lived)
	d.row.remark("the longest pause %.1f s", d.row.pause().Seconds())
	if err := errors.Join(err, errLived); err != nil {
		return err
	}
	return d.after(ctx, leaseTime+2*time.Second)
}

// playResets resets connections until enough streams have lost their engine.
func (d *dying) playResets(ctx context.Context) error {
	for range deaths {
		lived, err := d.router.continued(ctx)
		if err != nil || lived >= deaths {
			return err
		}
		victim := d.victims(1)[0]
		_, err = d.begin(ctx)
		if err == nil {
			d.relays[victim].reset()
			err = errors.Join(d.landAll(ctx), d.row.wantExact())
		}
		if err != nil {
			return fmt.Errorf("the connections to %s were reset: %w", victim, err)
		}
	}
	return fmt.Errorf("fewer than %d streams lost their engine and continued on another", deaths)
}

// victims are the next n decode engines. An engine is a victim again only after all others.
func (d *dying) victims(n int) []string {
	next := d.decoders[:n:n]
	d.decoders = append(d.decoders[n:len(d.decoders):len(d.decoders)], next...)
	return next
}

// shakeHands lets a new engine meet the others. On a busy machine a handshake takes longer than a lease, and
// blocks that are read later are not believed.
func (d *dying) shakeHands(ctx context.Context) error {
	row := d.row
	defer func() { d.row = row }()
	d.row = &faultRow{fault: "none"}
	return errors.Join(d.prime(ctx, d.router), d.prime(ctx, d.router))
}
