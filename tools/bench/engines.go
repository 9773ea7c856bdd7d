package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"sync"

	"github.com/tandem-router/tandem/internal/lab/enginesim"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// runEngines is the subcommand that plays engines, on consecutive ports.
func runEngines(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("engines", flag.ContinueOnError)
	kind := fs.String("kind", "sim", "sim or neutral")
	listen := fs.String("listen", "127.0.0.1:0", "address of the first engine")
	count := fs.Int("count", 1, "how many")
	if err := fs.Parse(args); err != nil {
		return err
	}
	first, err := net.ResolveTCPAddr("tcp", *listen)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for i := range *count {
		ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: first.IP, Port: first.Port + i})
		if err != nil {
			return err
		}
		if *kind == "neutral" {
			wg.Go(func() { new(upstream).serve(ctx, ln) })
			continue
		}
		s, err := simulate(ln)
		if err != nil {
			return err
		}
		defer s.Close()
	}
	<-ctx.Done()
	return nil
}

// simulate starts an engine whose steps and transfers take no time. It publishes KV events.
func simulate(ln net.Listener) (*enginesim.Server, error) {
	s, err := enginesim.Start(enginesim.Options{
		Listener: ln, Model: model, ZeroLatency: true, EventsEndpoint: "tcp://127.0.0.1:0",
		Core: core.Config{BlockSize: 16, Blocks: 32768},
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ln.Addr(), err)
	}
	return s, nil
}
