package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

// phase is the suite with one router. predicted is the share of predictions of cached tokens that must be exact.
type phase struct {
	name      string
	local     string // of the configuration
	requests  int
	workers   int
	seed      uint64
	predicted float64
	doctor    bool
}

// router is the built binary, serving.
type router struct {
	process      *process
	front, admin string
}

// playPhase starts a router, runs the requests, and prints and judges what came of them.
func (s *stage) playPhase(ctx context.Context, ph phase) error {
	file, err := s.configure(ph)
	if err != nil {
		return err
	}
	if ph.doctor {
		if err := s.consult(ctx, file); err != nil {
			return err
		}
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
	errStop := stop([]*process{r.process}, 10*time.Second)
	if err := errors.Join(errIdle, errRecords, errStop); err != nil {
		return err
	}
	v := judge(results, records)
	v.print(os.Stdout, ph, took, idle)
	return v.verdict(ph.predicted)
}

// configure writes the router's file.
func (s *stage) configure(ph phase) (string, error) {
	var pools [2][]string
	for _, e := range s.engines {
		at := map[string]int{"kv_producer": 0, "kv_consumer": 1}
		if i, ok := at[e.role]; ok {
			pools[i] = append(pools[i], fmt.Sprintf("{name: %s, url: %q}", e.name, e.url()))
		}
	}
	text := fmt.Sprintf("pools:\n  prefill: {replicas: [%s]}\n  decode: {replicas: [%s]}\nlocal: %s\n"+
		"response: {headers: true}\ndecisions: {ring: 20000}\ntimeouts: {queue: 2m}\n",
		strings.Join(pools[0], ", "), strings.Join(pools[1], ", "), ph.local)
	file := filepath.Join(s.work, "tandem-"+ph.local+".yaml")
	return file, os.WriteFile(file, []byte(text), 0o644)
}

// consult runs the doctor, for which healthy engines have to be healthy.
func (s *stage) consult(ctx context.Context, file string) error {
	out, err := exec.CommandContext(ctx, s.tandem, "doctor", "-quiet", "-config", file).CombinedOutput()
	fmt.Printf("\n%s\n", out)
	if err != nil {
		return fmt.Errorf("tandem doctor: %w", err)
	}
	return nil
}

var serving = regexp.MustCompile(`tandem serves on (\S+), admin on (\S+)`)

func (s *stage) serve(ctx context.Context, file string) (*router, error) {
	p, err := startProcess("router-"+filepath.Base(file), s.work, nil, s.tandem, "serve", "--config", file, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.processes = append(s.processes, p)
	r := &router{process: p}
	err = eventually(ctx, 30*time.Second, func() error {
		m := serving.FindStringSubmatch(p.logTail(1000))
		if m == nil {
			return errors.New("the router does not listen")
		}
		r.front, r.admin = "http://"+m[1], "http://"+m[2]
		ready, err := get(ctx, r.admin+"/readyz")
		if err == nil && strings.Contains(string(ready), `"ready": false`) {
			err = fmt.Errorf("not every replica is ready: %s", ready)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, p.logTail(20))
	}
	return r, nil
}

// eventually tries until f has no error, and returns the last one after limit.
func eventually(ctx context.Context, limit time.Duration, f func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := f()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
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
	alone := maps.Clone(q.body)
	alone["cache_salt"] = fmt.Sprintf("alone-%d-%s", begun.UnixNano(), got.id)
	want, err := ask(ctx, s.engines[len(s.engines)-1].url(), q.path, alone)
	if err != nil {
		res.diff = "no answer of the reference: " + err.Error()
		return res
	}
	res.diff = difference(got, want)
	return res
}

// awaitIdle waits until no engine holds a block for a request, and returns how long that took.
func (s *stage) awaitIdle(ctx context.Context, limit time.Duration) (time.Duration, error) {
	begun := time.Now()
	err := eventually(ctx, limit, func() error {
		var errs []error
		for _, e := range s.engines {
			used, err := e.usage(ctx)
			if err == nil && used != 0 {
				err = fmt.Errorf("%s still uses %.2f %% of its blocks", e.name, 100*used)
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	if err != nil {
		err = fmt.Errorf("%s after the last answer: %w", limit, err)
	}
	return time.Since(begun), err
}

// record is what the suite reads of a decision.
type record struct {
	ID        string `json:"id"`
	Mode      string `json:"mode"`
	Captured  int    `json:"captured_tokens"`
	Delivered int    `json:"delivered_tokens"`
	Prompt    int    `json:"prompt_tokens"`
	Attempts  int    `json:"attempts"`
	Outcome   string `json:"outcome"`
	Prefill   string `json:"prefill"`
	Decode    string `json:"decode"`
}

func readRecords(ctx context.Context, r *router) ([]record, error) {
	body, err := get(ctx, r.admin+"/debug/decisions?n=20000")
	if err != nil {
		return nil, err
	}
	var records []record
	if err := json.Unmarshal(body, &records); err != nil {
		return nil, fmt.Errorf("/debug/decisions: %w: %.200s", err, body)
	}
	return records, nil
}
