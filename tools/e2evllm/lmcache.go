package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/tandem-router/tandem/tools/pinned"
)

//go:embed pins-lmcache.txt
var pinsLMCache []byte

// caching are engines that share a store: a server of LMCache, at the side port of all engines.
var caching = &fleet{"caching", func() []*engine {
	all := wiredBy(caches, []*engine{
		{Name: "p0", Role: producer, Blocks: prefillBlocks, Flags: inChunks},
		{Name: "d0", Role: consumer, Blocks: decodeBlocks, Flags: atOnce},
		{Name: "d1", Role: consumer, Blocks: decodeBlocks, Flags: atOnce},
		{Name: "ref", Blocks: 512, Flags: atOnce},
	})
	ports, err := freePorts(1, 1)
	for _, e := range all {
		if err == nil {
			e.Side = ports[0]
		}
	}
	return all
}}

// cacheChunk is the tokens that the server keeps together. Its default, 256, is more than most prompts have.
const cacheChunk = 2 * blockTokens

// cacheWait is how long an engine stands still when the server dies while it asks. The default is 300 s.
const cacheWait = 10 * time.Second

// cacheName is the name of the server's processes.
const cacheName = "lmcache"

// cacheVars let a process import LMCache. It would report its use to its makers.
func (e environment) cacheVars() []string {
	return []string{
		"PYTHONPATH=" + e.site() + string(os.PathListSeparator) + e.cachePackages(), writeBytecode,
		"LMCACHE_TRACK_USAGE=false", "TANDEM_SPAWN=1",
	}
}

// cachePackages is the folder of LMCache. It is a folder of its own, so that the environment of all other
// acts stays as it is.
func (e environment) cachePackages() string { return pinned.Folder(e.root, "e2e-lmcache", pinsLMCache) }

func installCache(ctx context.Context, e environment) error {
	dir := e.cachePackages()
	file := filepath.Join(dir, "pins.txt")
	if err := os.WriteFile(file, pinsLMCache, 0o644); err != nil {
		return err
	}
	return pinned.Run(ctx, nil, e.python(), "-m", "uv", "pip", "install", "-q", "--python", e.python(),
		"--no-deps", "--target", dir, "-r", file)
}

// startCache starts the store of engines that share one, and waits until it listens: an engine waits for its
// store for ever.
func (s *stage) startCache(ctx context.Context) error {
	i := wired(caches, s.engines)
	if i < 0 || s.simulate {
		return nil
	}
	err := pinned.Once(ctx, say, s.env.cachePackages(), "lmcache",
		func(ctx context.Context) error { return installCache(ctx, s.env) })
	if err != nil {
		return err
	}
	e := s.engines[i]
	p, err := startProcess(cacheName, s.work, s.env.cacheVars(), "nice", s.env.python(), "-m",
		"lmcache.v1.multiprocess.server", "--host", e.host(), "--port", strconv.Itoa(e.Side),
		"--chunk-size", strconv.Itoa(cacheChunk), "--supported-transfer-mode", "engine_driven",
		"--l1-size-gb", "1", "--l1-init-size-gb", "1", "--eviction-policy", "LRU", "--disable-metrics")
	if err != nil {
		return err
	}
	s.processes = append(s.processes, p)
	return eventually(ctx, stillLimit, func() error {
		select {
		case <-p.ended:
			return fmt.Errorf("%s: %s: %s", cacheName, p.state, p.cause())
		default:
		}
		c, err := net.Dial("tcp", net.JoinHostPort(e.host(), strconv.Itoa(e.Side)))
		if err == nil {
			err = c.Close()
		}
		return err
	})
}

// cacheServer is the newest process of the store, nil if there is none.
func (s *stage) cacheServer() (newest *process) {
	for _, p := range s.processes {
		if p.name == cacheName {
			newest = p
		}
	}
	return newest
}

// lmcache compares split answers. Then the store is killed and comes back empty, and engines are killed.
func lmcache(ctx context.Context, s *stage) error {
	alone := phase{
		name: "LMCache, one at a time", local: "never", requests: pushRequests, workers: 1,
		seed: s.seed + 24000, kinds: everyKind,
	}
	beside := alone
	beside.name, beside.workers = "LMCache, eight at a time", 8
	beside.seed = s.seed + 25000
	f := &faulting{s: s, g: newGenerator(s.seed + 26000)}
	return inOrder(ctx,
		step{"the doctor", func() error { return consult(ctx, s) }},
		step{"split answers", func() error { return s.playPhases(ctx, alone, beside) }},
		step{"faults", func() error {
			return f.playAll(ctx, "lmcache", []scene{
				{"", "a prompt that the store has needs no prefill leg", leftOut},
				{"", "the store is killed, and comes back empty", cacheDies},
			})
		}},
	)
}

// leftOut asks for a prompt once more. The decode engine answers it alone, and has read it from the store or
// still has it.
func leftOut(ctx context.Context, f *faulting) error {
	before, err := f.legsLeftOut(ctx)
	prompt := f.completion(20*blockTokens, 8)
	for range 2 {
		f.launch(ctx, f.router, "asked twice", prompt)
		err = errors.Join(err, f.landAll(ctx), f.row.wantExact())
	}
	after, errAfter := f.legsLeftOut(ctx)
	if err = errors.Join(err, errAfter); err == nil && after != before+1 {
		err = fmt.Errorf("%v prefill legs were left out, want 1", after-before)
	}
	return errors.Join(err, f.after(ctx, 2*time.Second))
}

func (f *faulting) legsLeftOut(ctx context.Context) (float64, error) {
	return f.router.series(ctx, "tandem_prefill_legs_left_out_total")
}

// cacheDies kills the store while requests are in flight, and starts it again after further requests.
func cacheDies(ctx context.Context, f *faulting) error {
	cache := f.s.cacheServer()
	if cache == nil {
		return errors.New("the store belongs to another run")
	}
	f.hold(ctx, f.router, "the store dies", kinds)
	err := stop([]*process{cache}, 0)
	f.hold(ctx, f.router, "the store is dead", kinds)
	err = errors.Join(err, f.landAll(ctx), f.row.wantExact(), f.s.startCache(ctx))
	f.hold(ctx, f.router, "the store is back", kinds)
	err = errors.Join(err, f.landAll(ctx), f.row.wantExact())
	return errors.Join(err, eventually(ctx, time.Minute, func() error { return f.movesAgain(ctx) }),
		f.after(ctx, 2*time.Second))
}

// movesAgain sends a new prompt, which a decode engine must find in the store.
func (f *faulting) movesAgain(ctx context.Context) error {
	before, err := f.moved(ctx)
	f.launch(ctx, f.router, "the store is back", f.completion(10*blockTokens, 4))
	if err := errors.Join(err, f.landAll(ctx), f.row.wantExact()); err != nil {
		return err
	}
	after, err := f.moved(ctx)
	if err == nil && after < before+8*blockTokens {
		err = fmt.Errorf("the decode engine found %v tokens in the store", after-before)
	}
	return err
}

// moved is how many tokens decode engines have read from the store.
func (f *faulting) moved(ctx context.Context) (float64, error) {
	return f.router.series(ctx, "tandem_handoff_tokens_total", label("kind", "moved"))
}
