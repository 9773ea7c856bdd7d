// Package demo shows the router at work without a GPU: simulated engines, a router in front, multi-turn
// traffic, and a line per request.
//
// Everything runs in this process over real sockets and real ZMQ. The simulated engines behave like vLLM,
// wrong answers included. Every answer is compared with the answer of one more engine, which serves no other
// requests.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/orchestrator"
)

// Options says how large the demonstration is. The zero value is two prefill and two decode engines and 40
// requests.
//
// Long: one field per setting.
type Options struct {
	Prefill, Decode int           // engines of each pool, 2 when zero
	Requests        int           // requests to send; 0 sends until ctx ends
	Concurrency     int           // conversations at once, 4 when zero
	Seed            uint64        // of the traffic
	Listen          string        // of the router, a free loopback port when empty
	Admin           string        // of its admin listener, a free loopback port when empty
	Speed           float64       // how much faster than a real 8B model the engines are, 1 when zero
	Color           bool          // ANSI colours
	Out             io.Writer     // where the lines go
	Log             *slog.Logger  // the router's own log; nil discards
	Timeout         time.Duration // of one request, 60 s when zero

	otherModel bool // the reference is another model, so that every answer is wrong: for tests
}

// ErrWrong says that some answer was not what one engine alone gives.
var ErrWrong = errors.New("an answer was wrong")

func (o Options) withDefaults() Options {
	set := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	set(&o.Prefill, 2)
	set(&o.Decode, 2)
	set(&o.Concurrency, 4)
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	if o.Admin == "" {
		o.Admin = "127.0.0.1:0"
	}
	if o.Speed == 0 {
		o.Speed = 1
	}
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Run starts engines and router, sends the traffic, prints a line per request and a summary, and stops
// everything. It returns when the requests are done or ctx ends. The error is [ErrWrong] if an answer was
// wrong.
func Run(ctx context.Context, o Options) (err error) {
	o = o.withDefaults()
	h := &house{o: o}
	defer func() { err = errors.Join(err, h.close()) }()
	if err := h.open(ctx); err != nil {
		return err
	}
	show := newScreen(o.Out, o.Color)
	show.title(h)
	t := newTraffic(o)
	var wg sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(o.Requests))
	for i := range o.Concurrency {
		wg.Go(func() { h.talk(ctx, t.conversations(i), show, &left) })
	}
	wg.Wait()
	h.settle()
	show.summary(h)
	if n := show.wrong(); n > 0 {
		return fmt.Errorf("%d of %d requests: %w", n, show.count(), ErrWrong)
	}
	return nil
}

// house has the engines, the router and the reference engine.
type house struct {
	o         Options
	prefill   []*enginesim.Server
	decode    []*enginesim.Server
	reference *enginesim.Server
	router    *orchestrator.Orchestrator
	front     string
	admin     string
	stop      context.CancelFunc
	ended     chan error
}

// open starts everything and waits until the router is ready.
func (h *house) open(ctx context.Context) error {
	for _, side := range []struct {
		n  int
		to *[]*enginesim.Server
	}{{h.o.Prefill, &h.prefill}, {h.o.Decode, &h.decode}} {
		for range side.n {
			s, err := h.engine(false)
			if err != nil {
				return err
			}
			*side.to = append(*side.to, s)
		}
	}
	var err error
	if h.reference, err = h.engine(true); err != nil {
		return err
	}
	if err := h.startRouter(); err != nil {
		return err
	}
	return h.wait(ctx)
}

// engine starts a simulated engine. The reference has no latency, because its times are not shown.
func (h *house) engine(reference bool) (*enginesim.Server, error) {
	preset, _ := core.FindPreset("h100-llama-8b-1")
	cost := preset.Cost
	cost.Speed = h.o.Speed
	o := enginesim.Options{
		Model: "demo-8b", ScaleOut: true, TransferLatency: 2 * time.Millisecond, TransferRate: 20000 * h.o.Speed,
		Core: core.Config{BlockSize: 16, Blocks: 4096, MaxModelLen: 16384, Cost: cost},
	}
	if reference {
		o.ZeroLatency = true
		if h.o.otherModel {
			o.Core.Weights = "another"
		}
	} else {
		o.EventsEndpoint = "tcp://127.0.0.1:0"
	}
	return enginesim.Start(o)
}

func (h *house) startRouter() error {
	cfg := config.FromFlags(h.o.Listen, urls(h.prefill), urls(h.decode))
	for i := range cfg.Pools.Prefill.Replicas {
		cfg.Pools.Prefill.Replicas[i].Name = fmt.Sprintf("p%d", i+1)
	}
	for i := range cfg.Pools.Decode.Replicas {
		cfg.Pools.Decode.Replicas[i].Name = fmt.Sprintf("d%d", i+1)
	}
	cfg.Admin.Listen = h.o.Admin
	cfg.Timeouts.Drain = 2 * time.Second
	cfg.Response.Headers = true
	cfg.Pools.Prefill.PollInterval = 250 * time.Millisecond
	cfg.Pools.Decode.PollInterval = 250 * time.Millisecond
	if err := cfg.Validate(); err != nil {
		return err
	}
	var err error
	if h.router, err = orchestrator.New(cfg, orchestrator.Options{Log: h.o.Log, Seed: h.o.Seed}); err != nil {
		return err
	}
	l, err := h.router.Listen()
	if err != nil {
		return err
	}
	h.front, h.admin = address(l.Front), address(l.Admin)
	// Outlives the caller's by the drain time; ended by close.
	ctx, cancel := context.WithCancel(context.Background())
	h.stop, h.ended = cancel, make(chan error, 1)
	go func() { h.ended <- h.router.Serve(ctx, l, h.router.Admin()) }()
	return nil
}

func address(l net.Listener) string {
	if l == nil {
		return ""
	}
	return "http://" + l.Addr().String()
}

func urls(servers []*enginesim.Server) []string {
	var out []string
	for _, s := range servers {
		out = append(out, s.URL())
	}
	return out
}

// wait returns when the router reports that both pools are ready.
func (h *house) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		s := h.router.State().Status()
		up := 0
		for _, r := range s.Replicas {
			if r.Up && strings.HasPrefix(r.Events, "live") { // else its cache of the first prompts is unknown
				up++
			}
		}
		if up == len(h.prefill)+len(h.decode) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the router did not become ready: %v", s.Why)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// settle waits until the router has released the leases of interrupted clients, for a limited time.
func (h *house) settle() {
	for end := time.Now().Add(time.Second); h.router.Leases() > 0 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
}

// close stops everything and waits until it has ended.
func (h *house) close() error {
	var err error
	if h.stop != nil {
		h.stop()
		err = <-h.ended
	}
	for _, s := range append(append(h.prefill, h.decode...), h.reference) {
		if s != nil {
			s.Close()
		}
	}
	return err
}
