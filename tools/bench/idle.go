package main

import (
	"context"
	"time"
)

const (
	idleReplicas = 64
	idleSettle   = 8 * time.Second // for the first probe of all replicas
	idleWatch    = 10 * time.Second
)

// idle measures a front that watches many replicas and gets no requests.
func (b *bench) idle(ctx context.Context) error {
	var f fleet
	defer f.stop()
	b.say("idle: starting %d engines (%s)", idleReplicas, b.o.upstream)
	engines, err := f.engines(ctx, b.o, idleReplicas)
	if err != nil {
		return err
	}
	if model, err = servedModel(engines[0]); err != nil {
		return err
	}
	if err := f.serve(ctx, b.o, engines); err != nil {
		return err
	}
	if err := sleep(ctx, idleSettle); err != nil {
		return err
	}
	for n := range min(b.o.runs, 3) {
		if err := b.idleRun(ctx, f.tandem); err != nil {
			return err
		}
		b.say("idle run %d: %s", n+1, b.latest("idle_64_rss_mib", "idle_64_cpu_percent"))
	}
	return nil
}

func (b *bench) idleRun(ctx context.Context, p *process) error {
	before, err := p.cpu()
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := sleep(ctx, idleWatch); err != nil {
		return err
	}
	after, err := p.cpu()
	if err != nil {
		return err
	}
	rss, err := p.rss()
	if err != nil {
		return err
	}
	b.add("idle_64_rss_mib", rss)
	b.add("idle_64_cpu_percent", 100*(after-before).Seconds()/time.Since(begin).Seconds())
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
