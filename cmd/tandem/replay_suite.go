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

	"github.com/tandem-router/tandem/internal/lab/replay"
	"github.com/tandem-router/tandem/internal/lab/replay/suite"
)

// suiteCommand computes every claim that is made of the decision, and writes them down.
func suiteCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "suite", Short: "compute what docs/results.md claims of the decision", Args: noArgs,
	}
	o := suiteOptions{Options: suite.Options{Workers: runtime.GOMAXPROCS(0)}}
	fs := c.Flags()
	fs.IntVar(&o.Seeds, "seeds", 5, "how often each comparison is played, with other chance")
	fs.StringVar(&o.Traces, "traces", shippedTraces(),
		"`folder` of the traces; all claims but those of --quick want some that do not ship with Tandem")
	fleetFlags(c, &o.Links, &o.Host)
	fs.BoolVar(&o.Quick, "quick", false,
		"short windows and targets with a wide margin, an error where one is missed: for CI")
	fs.StringVar(&o.only, "only", "", "`names`, or beginnings of names, of what is computed; all if empty")
	fs.StringVar(&o.out, "out", filepath.Join("build", "replay.json"), "`file` for the lines")
	fs.BoolVar(&o.quiet, "quiet", false, "no progress")
	fs.BoolVar(&o.list, "list", false, "print the names and stop")
	c.RunE = func(c *cobra.Command, _ []string) error {
		return o.run(c.Context(), c.OutOrStdout(), c.ErrOrStderr())
	}
	return c
}

// suiteOptions is what the flags of suite say.
type suiteOptions struct {
	suite.Options
	only, out   string
	quiet, list bool
}

func (o *suiteOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	if o.list {
		return printNames(stdout, o.Names())
	}
	if _, err := os.Stat(o.Traces); err != nil {
		return fmt.Errorf("no traces: %w; --traces names the folder", err)
	}
	if o.only != "" {
		o.Only = strings.Split(o.only, ",")
	}
	if !o.quiet {
		o.Progress = since(stderr)
	}
	lines, err := playSuite(ctx, o.Options)
	err = errors.Join(err, suite.Print(stdout, lines),
		writeFile(o.out, func(w io.Writer) error { return suite.Write(w, lines) }))
	if o.Quick && err == nil {
		return suite.Missed(lines)
	}
	return err
}

// playSuite computes the lines; those of all claims have the validations behind them.
func playSuite(ctx context.Context, o suite.Options) ([]suite.Line, error) {
	lines, err := suite.Run(ctx, o)
	if err != nil || o.Quick || len(o.Only) > 0 {
		return lines, err
	}
	more, err := validations(o)
	return append(lines, more...), err
}

// validations are the figures of simulated engines beside measured runs.
func validations(o suite.Options) ([]suite.Line, error) {
	vs, err := replay.Validate(os.DirFS(filepath.Join(o.Traces, "vllm_ground_truth")), false, func(run string) {
		if o.Progress != nil {
			o.Progress("simulating " + run)
		}
	})
	return suite.Validations(vs), err
}

func printNames(w io.Writer, names []string) error {
	_, err := fmt.Fprintln(w, strings.Join(names, "\n"))
	return err
}

// since prints a line after the time that has gone by, for several goroutines.
func since(w io.Writer) func(string) {
	r := newReporter(w)
	return func(text string) { r.say(text, 0) }
}
