package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"sync"
	"time"
)

// consult runs the doctor, for which healthy engines have to be healthy.
func consult(ctx context.Context, s *stage) error {
	file, err := s.configure("doctor")
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, s.tandem, "doctor", "-quiet", "-config", file).CombinedOutput()
	fmt.Printf("\n%s\n", out)
	if err != nil {
		return fmt.Errorf("tandem doctor: %w", err)
	}
	return nil
}

// answers runs the suite in its two forms.
func answers(ctx context.Context, s *stage) error {
	var errs []error
	for _, ph := range []phase{
		{name: "one at a time, always split", local: "never", requests: s.requests / 2, workers: 1, seed: s.seed, predicted: 0.99},
		{name: "eight at a time, split or local", local: "auto", requests: s.requests - s.requests/2, workers: 8, seed: s.seed + 1000, predicted: 0.95},
	} {
		if err := s.playPhase(ctx, ph); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", ph.name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// phase is the suite with one router. predicted is the share of predictions of cached tokens that must be exact.
type phase struct {
	name      string
	local     string // of the configuration
	requests  int
	workers   int
	seed      uint64
	predicted float64
}

// playPhase starts a router, runs the requests, and prints and judges what came of them.
func (s *stage) playPhase(ctx context.Context, ph phase) error {
	file, err := s.configure(ph.local, "local: "+ph.local, "timeouts: {queue: 2m}")
	if err != nil {
		return err
	}
	r, err := s.serve(ctx, file)
	if err != nil {
		return err
	}
	say("%s: %d requests", ph.name, ph.requests)
	begun := time.Now()
	results := s.compareAll(ctx, r, ph)
	took := time.Since(begun)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	idle, errIdle := s.awaitIdle(ctx, 2*time.Second)
	records, errRecords := readRecords(ctx, r)
	errStop := r.end()
	if err := errors.Join(errIdle, errRecords, errStop); err != nil {
		return err
	}
	v := judge(results, records)
	v.print(os.Stdout, ph, took, idle)
	return v.verdict(ph.predicted)
}

// result is one request and how the two answers to it differ; "" is not at all.
type result struct {
	request
	id   string
	diff string
	took time.Duration
}

// compareAll sends every request of the phase through the router, workers at a time, and then to the reference.
func (s *stage) compareAll(ctx context.Context, r *router, ph phase) []result {
	g := newGenerator(ph.seed)
	jobs, results := make(chan request), make(chan result)
	var workers sync.WaitGroup
	for range ph.workers {
		workers.Go(func() {
			for q := range jobs {
				results <- s.compare(ctx, r, q)
			}
		})
	}
	go func() {
		defer close(results)
		defer workers.Wait()
		defer close(jobs)
		for range ph.requests {
			select {
			case jobs <- g.next():
			case <-ctx.Done():
				return
			}
		}
	}()
	all, said := make([]result, 0, ph.requests), time.Now()
	for res := range results {
		all = append(all, res)
		if res.diff != "" && ctx.Err() == nil {
			say("DIFFERENCE in %s (%s, stream %v): %s", res.id, res.kind, res.body["stream"] == true, res.diff)
		}
		if time.Since(said) > 15*time.Second {
			said = time.Now()
			say("%s: %d of %d", ph.name, len(all), ph.requests)
		}
	}
	return all
}

// compare sends q both ways. The reference has a salt of its own for it, so that it computes every answer from nothing.
func (s *stage) compare(ctx context.Context, r *router, q request) result {
	res := result{request: q}
	begun := time.Now()
	got, err := ask(ctx, r.front, q.path, q.body)
	res.id, res.took = got.id, time.Since(begun)
	if err != nil {
		res.diff = "no answer: " + err.Error()
		return res
	}
	s.memory.note(q, got)
	alone := maps.Clone(q.body)
	alone["cache_salt"] = fmt.Sprintf("alone-%d-%s", begun.UnixNano(), got.id)
	want, err := ask(ctx, s.reference().url(), q.path, alone)
	if err != nil {
		res.diff = "no answer of the reference: " + err.Error()
		return res
	}
	res.diff = difference(got, want)
	return res
}
