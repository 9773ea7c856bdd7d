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

// consult runs the doctor, which must report healthy engines as healthy.
func consult(ctx context.Context, s *stage) error {
	file, err := s.configure("doctor")
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, s.tandem, "doctor", "--quiet", "--timeout", "3m", "--config",
		file).CombinedOutput()
	fmt.Printf("\n%s\n", out)
	if err != nil {
		return fmt.Errorf("tandem doctor: %w", err)
	}
	return nil
}

// answers runs the suite in its two forms.
func answers(ctx context.Context, s *stage) error {
	half := s.requests / 2
	return s.playPhases(ctx,
		phase{
			name: "one at a time, always split", local: "never", requests: half, workers: 1, seed: s.seed,
			predicted: 0.99, kinds: everyKind,
		},
		phase{
			name: "eight at a time, split or local", local: "auto", requests: half, workers: 8,
			seed:      s.seed + 1000,
			predicted: 0.95, kinds: everyKind,
		},
	)
}

// scarcities asks for more blocks than the pools have.
func scarcities(ctx context.Context, s *stage) error {
	return s.playPhases(ctx, phase{
		name: "eight at a time, more than there is room for", local: "never", requests: max(s.requests/7, 12),
		workers: 8, seed: s.seed + 2000,
		predicted: 0.85, // blocks may be evicted between the plan and the prefill
		kinds:     longKinds, scarce: true,
	})
}

// playPhases plays one phase after another, and audits the caches after each.
func (s *stage) playPhases(ctx context.Context, phases ...phase) error {
	var errs []error
	for _, ph := range phases {
		if err := errors.Join(s.playPhase(ctx, ph), s.audit(ctx, 12)); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", ph.name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// phase is the suite with one router. predicted is the share of predictions of cached tokens that must be
// exact.
type phase struct {
	name      string
	local     string // of the configuration
	requests  int
	workers   int
	seed      uint64
	predicted float64
	kinds     []func(*generator) request // nil: plainKinds
	scarce    bool                       // blocks are to be evicted, and requests to wait for room
	settings  []string                   // more lines of the configuration
	inPieces  bool                       // prompts are to be sent in pieces, and none is split
	expires   bool                       // the engines take no lease back, so unused ones expire
}

// playPhase starts a router, runs the requests, and prints and judges the results.
func (s *stage) playPhase(ctx context.Context, ph phase) error {
	settings := append([]string{"local: " + ph.local, "timeouts: {queue: 2m, probe: 5s}"}, ph.settings...)
	file, err := s.configure(ph.local, settings...)
	if err != nil {
		return err
	}
	r, err := s.serve(ctx, file)
	if err != nil {
		return err
	}
	if err := awaitIndex(ctx, r); err != nil {
		return err
	}
	say("%s: %d requests", ph.name, ph.requests)
	before, err := s.pages(ctx, r)
	if err != nil {
		return err
	}
	begun, watch := time.Now(), s.watchRoom(ctx, r)
	results := s.compareAll(ctx, r, ph)
	took := time.Since(begun)
	idle, errIdle := s.awaitFree(ctx, ph.expires)
	watch.stop()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	after, errAfter := s.pages(ctx, r)
	records, errRecords := readRecords(ctx, r)
	if err := errors.Join(errIdle, awaitReleased(ctx, r), errAfter, errRecords, r.end()); err != nil {
		return err
	}
	v := judge(results, records)
	v.either = ph.local == "auto"
	v.scarcity = s.scarcity(before, after, watch, records)
	if ph.inPieces {
		v.pieces = before.piecesSent(after)
	}
	v.print(os.Stdout, ph, took, idle)
	return errors.Join(v.verdict(ph.predicted), v.scarcity.verdict(ph.scarce))
}

// awaitIndex waits until the router knows all blocks that its engines had cached before its start.
func awaitIndex(ctx context.Context, r *router) error {
	return eventually(ctx, 20*time.Second, func() error {
		page, err := scrape(ctx, r.admin)
		if err != nil {
			return err
		}
		for _, state := range []string{"unknown", "syncing", "stale"} {
			if n, _ := page.sum("tandem_index_trust", label("state", state)); n > 0 {
				return fmt.Errorf("the index of %.0f replicas is %s", n, state)
			}
		}
		return nil
	})
}

// awaitReleased waits until the router holds no leases.
func awaitReleased(ctx context.Context, r *router) error {
	return eventually(ctx, 2*time.Second, func() error {
		page, err := scrape(ctx, r.admin)
		if err != nil {
			return err
		}
		leases, known := page.sum("tandem_leases")
		if !known || leases != 0 {
			return fmt.Errorf("the router holds %.0f leases after the last answer (known: %v)", leases, known)
		}
		return nil
	})
}

// result is one request, and the difference between its two answers; "" means equal.
type result struct {
	request
	id   string
	diff string
	took time.Duration
}

// compareAll sends every request of the phase through the router, workers at a time, and then to the
// reference.
func (s *stage) compareAll(ctx context.Context, r *router, ph phase) []result {
	g := newGenerator(ph.seed)
	if ph.kinds != nil {
		g.kinds = ph.kinds
	}
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
			say("DIFFERENCE in %s (%s, stream %v): %s", res.id, res.kind, res.body["stream"] == true,
				res.diff)
		}
		if time.Since(said) > 15*time.Second {
			said = time.Now()
			say("%s: %d of %d", ph.name, len(all), ph.requests)
		}
	}
	return all
}

// compare sends q to the router and to the reference. The reference gets a new salt, so that it computes
// every answer without cached blocks.
func (s *stage) compare(ctx context.Context, r *router, q request) result {
	res := result{request: q}
	begun := time.Now()
	got, err := ask(ctx, r.front, q.path, q.body)
	res.id, res.took = got.id, time.Since(begun)
	if err != nil {
		res.diff = "no answer: " + err.Error()
		return res
	}
	if got.status != 200 && q.kind != overContext {
		res.diff = fmt.Sprintf("refused with %d: %.300s", got.status, got.refusal)
		return res
	}
	s.memory.note(q, got)
	alone := maps.Clone(q.body)
	alone["cache_salt"] = fmt.Sprintf("alone-%d-%s", begun.UnixNano(), got.id)
	want, err := ask(ctx, s.reference().url(), q.path, alone)
	if err != nil {
		res.diff = "no answer from the reference: " + err.Error()
		return res
	}
	res.diff = difference(got, want)
	return res
}
