package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/tandem-router/tandem/internal/demo"
)

// runDemo shows the router at work over simulated engines, all in this process.
func runDemo(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := newFlags("demo", "[--requests N] [--prefill N] [--decode N]", stderr)
	o := demo.Options{Out: stdout, Color: isTerminal(stdout)}
	fs.IntVar(&o.Requests, "requests", 40, "requests to send, then end; 0 sends until interrupted")
	fs.IntVar(&o.Prefill, "prefill", 2, "prefill engines")
	fs.IntVar(&o.Decode, "decode", 2, "decode engines")
	fs.IntVar(&o.Concurrency, "concurrency", 4, "conversations at once")
	fs.Float64Var(&o.Speed, "speed", 1, "how much faster than an 8B model on an H100 the engines are")
	fs.StringVar(&o.Listen, "listen", "", "`address` of the router (default a free loopback port)")
	fs.StringVar(&o.Admin, "admin", "", "`address` of its admin listener (default a free loopback port)")
	fs.Uint64Var(&o.Seed, "seed", 1, "of the traffic")
	verbose := fs.Bool("v", false, "show the router's log on standard error")
	if err := parse(fs, args); err != nil {
		return err
	}
	if fs.NArg() > 0 || o.Requests < 0 || o.Prefill < 1 || o.Decode < 1 || o.Concurrency < 1 || o.Speed <= 0 {
		fmt.Fprintln(stderr, "tandem demo: numbers must be positive, and there are no arguments behind the flags")
		return errUsage
	}
	if *verbose {
		o.Log = slog.New(slog.NewTextHandler(stderr, nil))
	}
	return demo.Run(ctx, o)
}

// isTerminal reports whether w is a terminal that wants colours.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
