package main

import (
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/tandem-router/tandem/internal/lab/demo"
)

// demoCommand shows the router at work over simulated engines, all in this process.
func demoCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "demo", Short: "simulated engines, a router and traffic, a line per request", Args: noArgs,
	}
	var o demo.Options
	fs := c.Flags()
	fs.IntVar(&o.Requests, "requests", 40, "requests to send, then end; 0 sends until interrupted")
	fs.IntVar(&o.Prefill, "prefill", 2, "prefill engines")
	fs.IntVar(&o.Decode, "decode", 2, "decode engines")
	fs.IntVar(&o.Concurrency, "concurrency", 4, "conversations at once")
	fs.Float64Var(&o.Speed, "speed", 1, "how much faster than an 8B model on an H100 the engines are")
	fs.StringVar(&o.Listen, "listen", "", "`address` of the router (default a free loopback port)")
	fs.StringVar(&o.Admin, "admin", "", "`address` of its admin listener (default a free loopback port)")
	fs.Uint64Var(&o.Seed, "seed", 1, "of the traffic")
	verbose := fs.BoolP("verbose", "v", false, "show the router's log on standard error")
	c.RunE = func(c *cobra.Command, _ []string) error {
		for _, n := range []struct {
			flag       string
			got, least int
		}{
			{"requests", o.Requests, 0},
			{"prefill", o.Prefill, 1},
			{"decode", o.Decode, 1},
			{"concurrency", o.Concurrency, 1},
		} {
			if n.got < n.least {
				return wrongValue("--%s is %d: choose %d or more", n.flag, n.got, n.least)
			}
		}
		if err := aboveZero("speed", o.Speed); err != nil {
			return err
		}
		if *verbose {
			o.Log = slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil))
		}
		o.Out, o.Color = c.OutOrStdout(), isTerminal(c.OutOrStdout())
		return demo.Run(c.Context(), o)
	}
	return c
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
