package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/tandem-router/tandem/tools/litellm"
	"github.com/tandem-router/tandem/tools/pinned"
)

// The load by which two answer caches are compared.
const (
	besideQuestions = 32   // questions; each is first asked once, one after the other
	besideConns     = 64   // connections that ask them again
	besideCrowd     = 1000 // requests that ask the same new question at once
)

// cacheFront is a front with an answer cache, new engines and a new cache server.
type cacheFront struct {
	fleet
	addr     string
	computes []string // engines whose counts of finished requests, summed, are the number of computed answers
}

// cacheBeside compares Tandem's answer cache with LiteLLM's cache in Redis. Both get the same requests, the
// same kind of engines and the same kind of server, all newly started. Only one front runs at a time.
func (b *bench) cacheBeside(ctx context.Context) error {
	root, err := pinned.Cache()
	if err != nil {
		return err
	}
	proxy, err := litellm.Install(ctx, root, b.say)
	if err != nil {
		return err
	}
	for n := range b.o.runs {
		turns := []func() error{
			func() error { return b.besideTandem(ctx) },
			func() error { return b.besideLiteLLM(ctx, proxy) },
		}
		if n%2 == 1 {
			slices.Reverse(turns)
		}
		for _, turn := range turns {
			if err := turn(); err != nil {
				return err
			}
		}
		b.say("run %d of %d: %s", n+1, b.o.runs, b.latest("tandem_hit_p50_ms", "litellm_hit_p50_ms",
			"tandem_hits_rps", "litellm_hits_rps", "tandem_crowd_computed", "litellm_crowd_computed"))
	}
	return nil
}

// begin starts the engines and the cache server.
func (f *cacheFront) begin(ctx context.Context, o *options) (engines []string, store string, err error) {
	if engines, err = f.engines(ctx, *o, 4); err != nil {
		return nil, "", err
	}
	if model, err = servedModel(engines[0]); err != nil {
		return nil, "", err
	}
	store, err = f.startValkey()
	return engines, store, err
}

func (b *bench) timedEngines() options {
	o := b.o
	o.upstream, o.timed = binarySim, true
	return o
}

// besideTandem takes the same figures as besideLiteLLM. It also measures a second router, which finds the
// answers of the first router in the server. Afterwards the second router has them in its own memory.
func (b *bench) besideTandem(ctx context.Context) error {
	var one cacheFront
	var other fleet
	defer one.stop()
	defer other.stop()
	o := b.timedEngines()
	engines, store, err := one.begin(ctx, &o)
	if err != nil {
		return err
	}
	o.config = fmt.Sprintf("answer_cache: {memory_bytes: 64MiB, valkey: {addresses: [%q]}}\n", store)
	if err := one.serve(ctx, o, engines); err != nil {
		return err
	}
	one.addr, one.computes = one.front, one.decode
	if err := b.beside(ctx, ours, &one); err != nil {
		return err
	}
	if err := other.serve(ctx, o, engines); err != nil {
		return err
	}
	return b.eachOnce(ours+"_server_hit", other.front)
}

func (b *bench) besideLiteLLM(ctx context.Context, proxy litellm.Proxy) error {
	var f cacheFront
	defer f.stop()
	o := b.timedEngines()
	engines, store, err := f.begin(ctx, &o)
	if err != nil {
		return err
	}
	if f.addr, err = freeAddr(); err != nil {
		return err
	}
	text, err := litellm.Config(model, store, urls(engines))
	if err != nil {
		return err
	}
	file, err := os.CreateTemp("", "tandem-bench-*.yaml")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = file.WriteString(text)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	program, args, err := proxy.Command(f.addr, file.Name())
	if err != nil {
		return err
	}
	if _, err := f.start("litellm", program, args...); err != nil {
		return err
	}
	if err := f.await(ctx, "http://"+f.addr+"/health/liveliness", 3*time.Minute); err != nil {
		return err
	}
	f.computes = engines
	return b.beside(ctx, "litellm", &f)
}

// beside measures each figure of one front once.
func (b *bench) beside(ctx context.Context, name string, f *cacheFront) error {
	warm, err := dial(f.addr)
	if err != nil {
		return err
	}
	_, err = warm.do(question(f.addr, -1))
	warm.close()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := b.eachOnce(name+"_miss", f.addr); err != nil {
		return err
	}
	time.Sleep(time.Second) // both fronts write to the server after they have answered
	before, err := countPrefills(f.computes)
	if err != nil {
		return err
	}
	single, err := driveHits(ctx, b.o.phase, f.addr, 1)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	b.latencies(name+"_hit", single.latency)
	many, err := driveHits(ctx, b.o.phase, f.addr, besideConns)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	b.add(name+"_hits_rps", many.rate())
	after, err := countPrefills(f.computes)
	if err != nil {
		return err
	}
	if after != before {
		return fmt.Errorf("%s: %.0f of %d hits were computed", name, after-before, single.answers+many.answers)
	}
	return b.crowd(name, f, before)
}

// eachOnce asks every question once over one connection.
func (b *bench) eachOnce(name, addr string) error {
	c, err := dial(addr)
	if err != nil {
		return err
	}
	defer c.close()
	latency := make([]time.Duration, besideQuestions)
	for n := range latency {
		q := question(addr, n)
		began := time.Now()
		if _, err := c.do(q); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		latency[n] = time.Since(began)
	}
	slices.Sort(latency)
	b.latencies(name, latency)
	return nil
}

func (b *bench) latencies(name string, sorted []time.Duration) {
	b.add(name+"_p50_ms", sorted[len(sorted)/2].Seconds()*1e3)
	b.add(name+"_p99_ms", sorted[len(sorted)*99/100].Seconds()*1e3)
}

// driveHits repeats all questions for d.
func driveHits(ctx context.Context, d time.Duration, addr string, conns int) (*result, error) {
	questions := make([][]byte, besideQuestions)
	for n := range questions {
		questions[n] = question(addr, n)
	}
	askers := make([]asker, conns)
	for i := range askers {
		c, err := dial(addr)
		if err != nil {
			return nil, err
		}
		defer c.close()
		askers[i] = func(n int) error {
			_, err := c.do(questions[(i+n)%len(questions)])
			return err
		}
	}
	return drive(ctx, d, askers)
}

// crowd sends one new question many times at once. It counts how often the engines computed the answer, and
// measures the time until all requests have it. before is the engines' count before the crowd.
func (b *bench) crowd(name string, f *cacheFront, before float64) error {
	conns, errs := make([]*conn, besideCrowd), make([]error, besideCrowd)
	for i := range conns {
		c, err := dial(f.addr)
		if err != nil {
			return err
		}
		defer c.close()
		conns[i] = c
	}
	q := question(f.addr, besideQuestions)
	var wg sync.WaitGroup
	began := time.Now()
	for i, c := range conns {
		wg.Go(func() { _, errs[i] = c.do(q) })
	}
	wg.Wait()
	b.add(name+"_crowd_ms", time.Since(began).Seconds()*1e3)
	failed := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	b.add(name+"_crowd_failed", float64(len(failed)))
	if len(failed) > 0 {
		b.say("%s: %d of %d simultaneous requests failed, the first: %v", name, len(failed), len(conns), failed[0])
	}
	after, err := countPrefills(f.computes)
	b.add(name+"_crowd_computed", after-before)
	return err
}

// question is a chat request. Each seed gives another text.
func question(host string, seed int) []byte {
	r := rand.New(rand.NewPCG(uint64(seed), 2))
	text := make([]byte, 0, 1<<10)
	for range promptTokens {
		text = append(text, "bcdfghklmnprstvz"[r.IntN(16)], "aeiou"[r.IntN(5)], ' ')
	}
	body := fmt.Appendf(nil, `{"model":%q,"temperature":0,"max_tokens":%d,`+
		`"messages":[{"role":"user","content":%q}]}`, model, streamTokens, text)
	return fmt.Appendf(nil, "POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", host, len(body), body)
}
