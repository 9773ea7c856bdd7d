package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/tandem-router/tandem/internal/replay"
	"github.com/tandem-router/tandem/internal/trace"
)

// runKinds lists the kinds of traffic that a decision is judged on, or writes one as a trace.
func runKinds(_ context.Context, args []string, stdout, stderr io.Writer) error {
	var p replay.Play
	fs := newFlags("replay kinds", "[flags]", stderr)
	name := fs.String("write", "", "write this `kind` as a trace, for -trace")
	out := fs.String("out", "", "`file` for it; NAME.jsonl if empty")
	fs.DurationVar(&p.For, "for", 10*time.Minute, "virtual time in which its sessions start")
	fs.Float64Var(&p.Scale, "scale", 1, "requests are so many times as dense")
	fs.Uint64Var(&p.Seed, "seed", 1, "of everything drawn")
	fs.StringVar(&p.Traces, "traces", shippedTraces(), "`folder` of the files that recorded kinds are of")
	if err := parseAlone(fs, args); err != nil {
		return err
	}
	if *name == "" {
		return listKinds(stdout)
	}
	p, err := p.OfKind(*name)
	if err != nil {
		return err
	}
	if *out == "" {
		*out = *name + ".jsonl"
	}
	n := 0
	err = writeFile(*out, func(w io.Writer) (err error) {
		n, err = p.Write(w)
		return err
	})
	if err == nil {
		_, err = fmt.Fprintf(stdout, "%s: %d requests\n", *out, n)
	}
	return err
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
