package main

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-router/tandem/internal/lab/replay"
	"github.com/tandem-router/tandem/internal/lab/trace"
)

// kindsCommand lists the kinds of traffic that a decision is judged on, or writes one as a trace.
func kindsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "kinds", Short: "list the kinds of traffic, or write one as a trace", Args: noArgs,
	}
	var p replay.Play
	fs := c.Flags()
	name := fs.String("write", "", "write this `kind` as a trace, for --trace")
	out := fs.String("out", "", "`file` for the trace; NAME.jsonl if empty")
	fs.DurationVar(&p.For, "for", 10*time.Minute, "virtual time in which its sessions start")
	fs.Float64Var(&p.Scale, "scale", 1, "multiply the rate of requests by this")
	fs.Uint64Var(&p.Seed, "seed", 1, "seed of the random numbers")
	fs.StringVar(&p.Traces, "traces", shippedTraces(), "`folder` with the recordings of recorded kinds")
	choices(c, "write", kindNames()...)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *name == "" {
			return listKinds(c.OutOrStdout())
		}
		return writeKind(c.OutOrStdout(), p, *name, cmp.Or(*out, *name+".jsonl"))
	}
	return c
}

func writeKind(stdout io.Writer, p replay.Play, name, file string) error {
	p, err := p.OfKind(name)
	if err != nil {
		return err
	}
	n := 0
	err = writeFile(file, func(w io.Writer) (err error) {
		n, err = p.Write(w)
		return err
	})
	if err == nil {
		_, err = fmt.Fprintf(stdout, "%s: %d requests\n", file, n)
	}
	return err
}

// kindNames are the kinds of traffic with their descriptions, for shells.
func kindNames() (names []string) {
	for _, k := range trace.Kinds() {
		names = append(names, described(k.Name, k.About))
	}
	return names
}

func listKinds(w io.Writer) error {
	for _, k := range trace.Kinds() {
		mark := "     "
		if k.Blind {
			mark = "blind"
		}
		file := k.Recorded.File
		if file == "" {
			file = "composed"
		}
		if _, err := fmt.Fprintf(w, "%-36s %s  %s (%s)\n", k.Name, mark, k.About, file); err != nil {
			return err
		}
	}
	return nil
}
