package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/doctor"
)

// doctorCommand examines live engines: the engines of a file as Tandem would use them, or engines at URLs.
// Findings go to stdout, progress to stderr. The error names the failed checks.
func doctorCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor {--config FILE | --prefill URL... --decode URL... | URL...}",
		Short: "ask live engines whether prefix routing can work; explain what stops it",
		Long: "Asks live engines whether prefix routing can work, and explains what stops it. Sends three " +
			"completions of one token to each\n" +
			"data-parallel rank, and one handoff for each pair (a sample in a large fleet), unless --passive; uses " +
			"no admin path.\nExit code 0: nothing failed, 1: something did, 2: the command line is wrong.",
		Example: "  tandem doctor --config tandem.yaml\n" +
			"  tandem doctor --prefill http://p0:8000 --decode http://d0:8000\n" +
			"  tandem doctor http://e0:8000    # an engine by itself: no handoff is tried",
	}
	var o doctorOptions
	fs := c.Flags()
	fs.StringVar(&o.file, "config", "",
		"examine the replicas of this configuration `file`, as Tandem would use them")
	fs.StringArrayVar(&o.prefill, "prefill", nil, "`URL` of a prefill replica; may be repeated")
	fs.StringArrayVar(&o.decode, "decode", nil, "`URL` of a decode replica; may be repeated")
	fs.BoolVar(&o.json, "json", false, "write one JSON object, for programs")
	fs.BoolVar(&o.Passive, "passive", false, "send no completion; skip the checks that need one")
	fs.DurationVar(&o.Timeout, "timeout", time.Minute, "for everything")
	fs.BoolVar(&o.quiet, "quiet", false, "show no progress")
	fs.BoolVarP(&o.verbose, "verbose", "v", false, "show each check that holds, and the progress of each engine")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := o.read(args, c.OutOrStdout(), c.ErrOrStderr()); err != nil {
			return err
		}
		return o.run(c.Context(), c.OutOrStdout())
	}
	return c
}

// doctorOptions is what the flags of doctor say.
type doctorOptions struct {
	doctor.Options
	file            string
	prefill, decode []string
	json            bool
	quiet, verbose  bool
}

// read completes the options by the arguments and the configuration file.
func (o *doctorOptions) read(urls []string, stdout, stderr io.Writer) (err error) {
	pools := len(o.prefill)+len(o.decode) > 0
	switch {
	case o.file == "" && len(urls) == 0 && !pools:
		return wrongUse("name the engines: --config FILE, --prefill URL and --decode URL, or URLs alone")
	case o.file != "" && (len(urls) > 0 || pools):
		return wrongUse("give the engines in the file or as URLs, not both")
	case len(urls) > 0 && pools:
		return wrongUse("of which pool is %s? Write --prefill or --decode before each URL", urls[0])
	case o.Timeout <= 0:
		return wrongValue("--timeout is %v: choose a duration above 0", o.Timeout)
	case !o.quiet:
		o.Progress = func(subject, step string) {
			switch {
			case subject == doctor.All:
				fmt.Fprintln(stderr, step)
			case o.verbose:
				fmt.Fprintf(stderr, "%s: %s\n", subject, step)
			}
		}
	}
	for _, u := range urls {
		if u = strings.TrimRight(u, "/"); !slices.Contains(o.URLs, u) {
			o.URLs = append(o.URLs, u)
		}
	}
	switch {
	case o.file != "":
		o.Config, err = readConfig(config.Load, o.file, stdout)
	case pools:
		if o.Config, err = fromFlags("", o.prefill, o.decode); err == nil {
			err = o.Config.Validate()
		}
	}
	return err
}

func (o *doctorOptions) run(ctx context.Context, stdout io.Writer) error {
	if o.Config != nil {
		var notes []string
		o.Config, notes = discovered(ctx, o.Config)
		for _, note := range notes {
			if o.Progress != nil {
				o.Progress(doctor.All, note)
			}
		}
	}
	report, err := doctor.Run(ctx, o.Options)
	if err != nil {
		return err
	}
	if o.json {
		err = report.JSON(stdout)
	} else {
		err = report.Text(stdout, o.verbose)
	}
	if err != nil {
		return err
	}
	if !report.Fit() {
		return fmt.Errorf("%d of %d checks failed", report.Count.Failed, len(report.Findings))
	}
	return nil
}
