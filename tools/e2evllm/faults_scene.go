package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

func (p *process) freeze()   { p.signal(syscall.SIGSTOP) }
func (p *process) unfreeze() { p.signal(syscall.SIGCONT) }

func (f *faulting) freeze(names ...string) {
	for _, name := range names {
		f.s.engine(name).freeze()
	}
}

func (f *faulting) unfreeze(names ...string) {
	for _, name := range names {
		f.s.engine(name).unfreeze()
	}
}

// hold sends n requests of all kinds at once.
func (f *faulting) hold(ctx context.Context, r *router, phase string, n int) {
	for range n {
		i := f.count
		if f.pushed && i%4 == 2 { // a chat
			i -= i / 4 % 3 * 4
		}
		f.launch(ctx, r, phase, faultRequest(f.g, i))
		f.count++
	}
}

func (f *faulting) launch(ctx context.Context, r *router, phase string, q request) *flight {
	one := launch(ctx, r.front, phase, q)
	f.flying = append(f.flying, one)
	return one
}

// completion is a new prompt of n ids.
func (f *faulting) completion(n, answer int) request { return plainIDs(f.g.ids(n), answer) }

func plainIDs(ids []int, answer int) request {
	return request{"ids", completions, map[string]any{
		"model": modelName, "prompt": ids, "max_tokens": answer, "temperature": 0, "ignore_eos": true,
		"return_token_ids": true,
	}}
}

// kinds is the number of requests of each form of faultRequest.
const kinds = 12

// faultRequest is the i-th request of a row with all four APIs, whole and streamed, new prompts and shared
// beginnings. Requests with text always have the same text: the router remembers its token ids and asks no
// engine.
func faultRequest(g *generator, i int) request {
	var q request
	switch i % 4 {
	case 0:
		q = plainIDs(g.ids(4*blockTokens+i%60), 6)
	case 1:
		q = plainIDs(slices.Concat(beginning, g.ids(40+i%50)), 9)
	case 2:
		q = atAPI(i / 4 % 3)
	case 3:
		q = plainIDs(slices.Concat(beginning[:2*blockTokens], g.ids(3*blockTokens)), 3)
	}
	if i%4 == 1 || i/4%2 == 1 {
		q.body["stream"] = true
		if q.path == completions || q.path == chat {
			q.body["stream_options"] = map[string]any{"include_usage": true}
		}
	}
	return q
}

// beginning is shared by requests of all faults: many requests would read a wrong block in it.
var beginning = newGenerator(77).ids(5 * blockTokens)

func atAPI(i int) request {
	g := newGenerator(78)
	system, said := g.text(70), []map[string]any{message("user", g.text(9))}
	switch i {
	case 0:
		turns := append([]map[string]any{message("system", system)}, said...)
		return request{
			"chat", chat, map[string]any{
				"model": modelName, "messages": turns, "max_tokens": 8,
				"temperature": 0,
			},
		}
	case 1:
		return request{
			"messages", messagesPath,
			map[string]any{
				"model": modelName, "system": system, "messages": said, "max_tokens": 8,
				"temperature": 0,
			},
		}
	}
	return request{
		"responses", responsesPath,
		map[string]any{"model": modelName, "input": system, "max_output_tokens": 8, "temperature": 0},
	}
}

// landAll waits for every flight and judges the answer.
func (f *faulting) landAll(ctx context.Context) error { return f.judge(ctx, false) }

// landCut is landAll for a killed router, which could not send its clients an error.
func (f *faulting) landCut(ctx context.Context) error { return f.judge(ctx, true) }

// judge compares the answers with the reference's and counts them in the row.
func (f *faulting) judge(ctx context.Context, cut bool) error {
	flying := f.flying
	f.flying = nil
	for _, one := range flying {
		one.land()
	}
	f.remember(flying)
	wants := f.askReference(ctx, flying)
	var errs []error
	for i, one := range flying {
		v, why := judgeLanded(&one.landed, &wants[i], cut)
		if one.fair > answerLimit {
			v = wrong
			why = fmt.Sprintf("the answer took %.0f s, %.0f s without waits for a CPU", one.took.Seconds(),
				one.fair.Seconds())
		}
		if v == clearError && !cut {
			why += f.attemptsOf(ctx, one.landed.id)
		}
		f.row.count(one, v, why)
		if v == wrong && ctx.Err() == nil {
			errs = append(errs, fmt.Errorf("%s, %s (%s, stream %v): %s",
				one.phase, one.landed.id, one.kind, one.body["stream"] == true, why))
		}
	}
	return errors.Join(append(errs, ctx.Err())...)
}

// attemptsOf describes where the router sent a failed request, and why it tried no other replica. It returns
// "" for a request of another router.
func (f *faulting) attemptsOf(ctx context.Context, id string) string {
	body, err := get(ctx, f.router.admin+"/debug/decisions/"+id)
	var record struct {
		Failed []struct {
			At, Phase, Kind string
		} `json:"failed_attempts"`
		NotRetried string `json:"not_retried"`
	}
	if err != nil || json.Unmarshal(body, &record) != nil {
		return ""
	}
	var said strings.Builder
	for _, a := range record.Failed {
		fmt.Fprintf(&said, " (%s %s: %s)", a.Phase, a.At, a.Kind)
	}
	return said.String() + " " + record.NotRetried
}

// askReference sends the requests of all flights to the reference, three at a time, each with a new salt.
func (f *faulting) askReference(ctx context.Context, flying []*flight) []landed {
	wants := make([]landed, len(flying))
	next := make(chan int)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for i := range next {
				q := flying[i].request
				q.body = maps.Clone(q.body)
				q.body["cache_salt"] = fmt.Sprintf("alone-%d-%d", time.Now().UnixNano(), i)
				wants[i] = tell(ctx, f.s.reference().url(), q, func() {})
			}
		})
	}
	for i := range flying {
		next <- i
	}
	close(next)
	all.Wait()
	return wants
}

// remember notes the prompts of ids for the audits and for later requests: the held requests come last,
// because audits take the newest.
func (f *faulting) remember(flying []*flight) {
	held := func(one *flight) int { return map[bool]int{true: 0, false: 1}[one.phase == flowing] }
	order := slices.Clone(flying)
	slices.Reverse(order) // the requests held first, for the longest time, come last
	slices.SortStableFunc(order, func(a, b *flight) int { return cmp.Compare(held(a), held(b)) })
	for _, one := range order {
		if ids, ok := one.body["prompt"].([]int); ok && one.landed.status == 200 {
			f.s.memory.note(one.request,
				answer{mode: "split", choices: []choice{{ids: one.landed.ids, promptIDs: ids}}})
			f.recent = append(f.recent, ids)
		}
	}
}

// series is the sum of the samples of a router's metric that have all these labels, in the form of the page.
func (r *router) series(ctx context.Context, name string, labels ...string) (float64, error) {
	body, err := get(ctx, r.admin+"/metrics")
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for line := range strings.Lines(string(body)) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != '{' && rest[0] != ' ' ||
			slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(rest, l) }) {
			continue
		}
		fields := strings.Fields(rest)
		v, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if err != nil {
			return 0, fmt.Errorf("%q: %w", line, err)
		}
		sum += v
	}
	return sum, nil
}

// hasLeases requires the router to hold at least n leases with the label.
func (f *faulting) hasLeases(ctx context.Context, r *router, n int, label string) error {
	have, err := r.series(ctx, "tandem_leases", label)
	if err == nil && have < float64(n) {
		err = fmt.Errorf("%v leases with %s, want %d: the requests are not in the intended phase",
			have, label, n)
	}
	return err
}

// noLeases requires the router to hold no lease in the pool, or in either pool for "".
func (f *faulting) noLeases(ctx context.Context, r *router, pool string) error {
	have, err := r.series(ctx, "tandem_leases", `pool="`+pool)
	if err == nil && have > 0 {
		err = fmt.Errorf("%v leases are left in the router, pool %q", have, pool)
	}
	return err
}

// living are the engines that answer.
func (f *faulting) living(ctx context.Context) []*engine {
	return slices.DeleteFunc(slices.Clone(f.s.engines), func(e *engine) bool {
		return e.dead() != "" || !e.answers(ctx)
	})
}

// awaitBooks waits until the router holds no lease and the engines no block. since is the earliest time for
// that.
func (f *faulting) awaitBooks(
	ctx context.Context, engines []*engine, limit time.Duration, since time.Time,
) error {
	err := eventually(ctx, limit, func() error {
		left, err := f.router.series(ctx, "tandem_leases")
		if f.row.leases = left; err == nil && left > 0 {
			err = fmt.Errorf("%v leases are left in the router", left)
		}
		errs := []error{err}
		for _, e := range engines {
			used, err := e.usage(ctx)
			if err == nil && used > 0 {
				err = fmt.Errorf("%s still has %.1f %% of its blocks in use", e.Name, 100*used)
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	f.row.idle = time.Since(since)
	return err
}

// after checks the state after a fault: no lease, no block, exact answers to later requests, and no wrong
// block in any cache.
func (f *faulting) after(ctx context.Context, limit time.Duration) error {
	if f.pushed || f.brokenLegs(ctx) > f.broken {
		limit = max(limit, leaseTime+2*time.Second)
	}
	living := f.living(ctx)
	books := func() error { return f.awaitBooks(ctx, living, limit, time.Now()) }
	var err error
	if limit < leaseTime {
		err = noneRunsOut(ctx, living, books)
	} else {
		err = books()
	}
	// In this order, because later requests may evict wrong blocks.
	return errors.Join(err, f.checkCaches(ctx), f.checkCore(ctx))
}

// brokenLegs is the number of decode legs that the router has repeated on another engine. The first of two
// legs may still have arrived and be read later. Then its blocks stay until their lease expires
// (docs/decisions/0002). For example, an engine that stood still for its keep-alive time resets a connection
// with a request on it.
func (f *faulting) brokenLegs(ctx context.Context) float64 {
	n, _ := f.router.series(ctx, "tandem_retries_total", `phase="decode"`)
	return n
}

// settle unfreezes everything and lands all requests in flight. After a successful scene there are none.
func (f *faulting) settle(ctx context.Context) error {
	f.letGo()
	if len(f.flying) == 0 {
		return nil
	}
	return f.landAll(ctx)
}

// letGo unfreezes every engine and every router.
func (f *faulting) letGo() {
	for _, e := range f.s.engines {
		e.unfreeze()
	}
	for _, p := range f.s.processes {
		if strings.HasPrefix(p.name, "router") && !p.left {
			p.unfreeze()
		}
	}
}
