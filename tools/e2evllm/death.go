package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// deaths is how many greedy streams have to lose their decode engine in the middle, streams how many run at
// once, and kills how often an engine is really killed; otherwise its connections are reset, which to a
// router is the same.
const (
	deaths  = 30
	streams = 8
	kills   = 2
)

// death kills decode engines under greedy streams. Each stream goes on elsewhere, and its client has what
// one engine would have said, to the last byte, with usage and finish reason.
func death(ctx context.Context, s *stage) error {
	d := &dying{relays: map[string]*relay{}}
	urls := map[string]string{}
	for _, name := range []string{"d0", "d1"} {
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

// dying is the act while it is played.
type dying struct {
	*faulting
	relays map[string]*relay
}

func (d *dying) play(ctx context.Context) error {
	d.row = &faultRow{fault: "a decode engine dies in mid-stream"}
	d.rows = append(d.rows, d.row)
	for i, victim := 0, "d0"; ; i, victim = i+1, map[string]string{"d0": "d1", "d1": "d0"}[victim] {
		lived, err := d.router.continued(ctx)
		switch {
		case err != nil:
			return err
		case i > deaths:
			return fmt.Errorf("%v of %d streams that lost their engine went on elsewhere", lived, deaths)
		case lived >= deaths:
			return d.playKills(ctx, victim)
		}
		if err := d.round(ctx, victim, d.reset); err != nil {
			return fmt.Errorf("the connections to %s were reset: %w", victim, err)
		}
	}
}

func (d *dying) playKills(ctx context.Context, victim string) error {
	for range kills {
		if err := d.round(ctx, victim, d.kill); err != nil {
			return fmt.Errorf("%s was killed: %w", victim, err)
		}
	}
	lived, err := d.router.continued(ctx)
	d.row.remark("%v streams lost their engine and went on, an engine was killed %d times", lived, kills)
	return errors.Join(err, d.after(ctx, leaseTime+2*time.Second))
}

// round lets streams begin, takes the victim away from those that it serves, and wants every stream to be
// exact.
func (d *dying) round(ctx context.Context, victim string, take func(context.Context, string) error) error {
	phase := "mid-stream"
	for i := range streams {
		one := d.launch(ctx, d.router, phase, d.stream(i))
		if err := awaitFirst(ctx, one, time.Minute); err != nil {
			return err
		}
	}
	if err := take(ctx, victim); err != nil {
		return err
	}
	return errors.Join(d.landAll(ctx), d.row.wantExact())
}

// stream is a greedy stream at one of two doors that is long enough to be in its middle when the last one
// has begun.
func (d *dying) stream(i int) request {
	q := d.completion(30+7*i, 190)
	if i%2 == 1 {
		said := []map[string]any{message("user", d.g.text(12))}
		q = request{"chat", chat, map[string]any{
			"model": modelName, "messages": said, "max_tokens": 190, "temperature": 0, "ignore_eos": true,
		}}
	}
	q.body["stream"], q.body["stream_options"] = true, map[string]any{"include_usage": true}
	return q
}

func (d *dying) reset(_ context.Context, victim string) error {
	d.relays[victim].reset()
	return nil
}

// kill ends the engine and begins to start it again.
func (d *dying) kill(ctx context.Context, victim string) error {
	e := d.s.engine(victim)
	if err := errors.Join(e.kill(), d.landAll(ctx), d.s.startEngine(e)); err != nil {
		return err
	}
	if err := awaitHealthy(ctx, []*engine{e}); err != nil {
		return err
	}
	return errors.Join(d.awaitUp(ctx, victim), d.shakeHands(ctx))
}

// shakeHands lets an engine that is new meet the others: on a busy machine that takes longer than a lease, and what is
// read after that is not believed.
func (d *dying) shakeHands(ctx context.Context) error {
	row := d.row
	defer func() { d.row = row }()
	d.row = &faultRow{fault: "none"}
	return errors.Join(d.prime(ctx, d.router), d.prime(ctx, d.router))
}
