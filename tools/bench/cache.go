package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// The load of the answer cache.
const (
	cacheQuestions = 256
	cacheConns     = 16
)

// cache compares the time of a hit with the time of a miss. Hits come from memory, and from a Valkey or Redis
// server that two routers share. Simulated engines take as long as real ones.
func (b *bench) cache(ctx context.Context) error {
	if b.o.litellm {
		return b.cacheBeside(ctx)
	}
	for n := range b.o.runs {
		if err := b.cacheRun(ctx); err != nil {
			return err
		}
		b.say("run %d of %d: %s", n+1, b.o.runs,
			b.latest("cache_miss_p50_ms", "cache_memory_p50_ms", "cache_shared_p50_ms"))
	}
	return nil
}

// cacheRun begins with an empty cache. It sends all questions to one router twice, then to another router
// once.
func (b *bench) cacheRun(ctx context.Context) error {
	var one, other fleet
	defer one.stop()
	defer other.stop()
	if err := serveCached(ctx, b.o, &one, &other); err != nil {
		return err
	}
	for _, pass := range []cachePass{
		{"cache_miss", &one, `tandem_answer_cache_shared_writes_total{result="written"}`},
		{"cache_memory", &one, `tandem_answer_cache_requests_total{result="hit"}`},
		{"cache_shared", &other, `tandem_answer_cache_shared_looks_total{result="hit"}`},
	} {
		if err := b.cachePass(pass); err != nil {
			return fmt.Errorf("%s: %w", pass.name, err)
		}
	}
	return nil
}

// serveCached starts two routers for the same engines. The routers share their answers through a server.
func serveCached(ctx context.Context, o options, one, other *fleet) error {
	o.upstream, o.timed = binarySim, true
	engines, err := one.engines(ctx, o, 4)
	if err != nil {
		return err
	}
	if model, err = servedModel(engines[0]); err != nil {
		return err
	}
	server, err := one.startValkey()
	if err != nil {
		return err
	}
	o.config = fmt.Sprintf("answer_cache: {memory_bytes: 64MiB, valkey: {addresses: [%q]}}\n", server)
	if err := one.serve(ctx, o, engines); err != nil {
		return err
	}
	return other.serve(ctx, o, engines)
}

// cachePass sends all questions to one router. want is the series of its metrics that counts the expected
// kind of answer.
type cachePass struct {
	name string
	of   *fleet
	want string
}

// cachePass measures one pass.
func (b *bench) cachePass(pass cachePass) error {
	r, err := askEach(pass.of.front, cacheQuestions)
	if err != nil {
		return err
	}
	text, err := scrape(pass.of.admin)
	if err != nil {
		return err
	}
	if n := counted(string(text), pass.want); n < cacheQuestions*9/10 {
		return fmt.Errorf("%s is %d of %d", pass.want, n, cacheQuestions)
	}
	b.add(pass.name+"_p50_ms", r.p50().Seconds()*1e3)
	b.add(pass.name+"_p99_ms", r.latency[len(r.latency)*99/100].Seconds()*1e3)
	b.add(pass.name+"_rps", r.rate())
	return nil
}

// counted is the value of a series, or 0 if it is missing.
func counted(metrics, series string) (n int) {
	for line := range strings.Lines(metrics) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			_, _ = fmt.Sscan(value, &n) // n stays 0 on an error
		}
	}
	return n
}

// startValkey starts the system's Valkey or Redis server for this measurement alone.
func (f *fleet) startValkey() (addr string, err error) {
	if addr, err = freeAddr(); err != nil {
		return "", err
	}
	_, port, _ := strings.Cut(addr, ":")
	for _, name := range []string{"valkey-server", "redis-server"} {
		if path, err := exec.LookPath(name); err == nil {
			_, err = f.start(name, path, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
				"--dir", os.TempDir())
			return addr, err
		}
	}
	return "", errors.New("neither valkey-server nor redis-server is installed: run make deps-test")
}

// askEach asks n questions, each once, over several connections.
func askEach(addr string, n int) (*result, error) {
	latencies := make([][]time.Duration, cacheConns)
	errs := make([]error, cacheConns)
	var wg sync.WaitGroup
	begin := time.Now()
	for i := range cacheConns {
		wg.Go(func() {
			c, err := dial(addr)
			if err != nil {
				errs[i] = err
				return
			}
			defer c.close()
			for seed := 1 + i; seed <= n && errs[i] == nil; seed += cacheConns {
				request := completion(addr, seed, streamTokens, false)
				began := time.Now()
				_, errs[i] = c.do(request)
				latencies[i] = append(latencies[i], time.Since(began))
			}
		})
	}
	wg.Wait()
	r := &result{took: time.Since(begin), latency: slices.Concat(latencies...)}
	slices.Sort(r.latency)
	r.answers = len(r.latency)
	return r, errors.Join(errs...)
}
