package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tandem-router/tandem/internal/lab/replay/claims"
)

// claimsCommand checks claims about the decision, and writes the result of each.
func claimsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "check", Short: "check claims about the decision: nine in seconds, with --all more in minutes",
		Args: noArgs,
	}
	o := checkClaimsOptions{Options: claims.Options{Workers: runtime.GOMAXPROCS(0)}}
	fs := c.Flags()
	fs.StringVar(&o.Traces, "traces", shippedTraces(), "`folder` of the traces")
	fleetFlags(c, &o.Links, &o.Host)
	fs.BoolVar(&o.All, "all", false, "also check claims about failing replicas, overload and old load reports")
	fs.StringVar(&o.only, "only", "", "`names`, or beginnings of names, of the claims to check; all if empty")
	fs.StringVar(&o.out, "out", filepath.Join("build", "replay.json"), "`file` for the results")
	fs.BoolVar(&o.quiet, "quiet", false, "no progress")
	fs.BoolVar(&o.list, "list", false, "print the names and stop")
	c.RunE = func(c *cobra.Command, _ []string) error {
		return o.run(c.Context(), c.OutOrStdout(), c.ErrOrStderr())
	}
	return c
}

// checkClaimsOptions is what the flags of check say.
type checkClaimsOptions struct {
	claims.Options
	only, out   string
	quiet, list bool
}

func (o *checkClaimsOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	if o.list {
		return printNames(stdout, o.Names())
	}
	if _, err := os.Stat(o.Traces); err != nil {
		return fmt.Errorf("no traces: %w; --traces names the folder", err)
	}
	o.Only = named(o.only)
	if !o.quiet {
		o.Progress = since(stderr)
	}
	lines, err := claims.Run(ctx, o.Options)
	err = errors.Join(err, claims.Print(stdout, lines),
		writeFile(o.out, func(w io.Writer) error { return claims.Write(w, lines) }))
	if err != nil {
		return err
	}
	return claims.Missed(lines)
}

func printNames(w io.Writer, names []string) error {
	_, err := fmt.Fprintln(w, strings.Join(names, "\n"))
	return err
}

// since prints a line after the elapsed time, for several goroutines.
func since(w io.Writer) func(string) {
	r := newReporter(w)
	return func(text string) { r.say(text, 0) }
}
