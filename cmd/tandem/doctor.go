package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/doctor"
)

// runDoctor examines live engines: those of a file as Tandem would use them, or those at URLs. Findings go to
// stdout, progress to stderr; anything that failed is the error.
func runDoctor(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, asJSON, err := doctorOptions(args, stdout, stderr)
	if err != nil {
		return err
	}
	report, err := doctor.Run(ctx, o)
	if err != nil {
		return err
	}
	write := report.Text
	if asJSON {
		write = report.JSON
	}
	if err := write(stdout); err != nil {
		return err
	}
	if !report.Fit() {
		return fmt.Errorf("%d of %d checks failed", report.Count.Failed, len(report.Findings))
	}
	return nil
}

func doctorOptions(args []string, stdout, stderr io.Writer) (o doctor.Options, asJSON bool, err error) {
	fs := newFlags("doctor", "[flags] [-config FILE | URL ...]\n\n"+
		"Asks live engines whether prefix routing can work, and explains what stops it. Sends three completions "+
		"of one token to each\n"+
		"data-parallel rank, and one handoff for each pair (a sample in a large fleet), unless -passive; uses "+
		"no admin path.\nExit code 0: nothing failed, 1: something did, 2: wrong use.", stderr)
	file := fs.String("config", "",
		"examine the replicas of this configuration `file`, as Tandem would use them")
	fs.BoolVar(&asJSON, "json", false, "write one JSON object, for machines")
	fs.BoolVar(&o.Passive, "passive", false, "send no completion; what only one can show stays unchecked")
	fs.DurationVar(&o.Timeout, "timeout", time.Minute, "for everything")
	quiet := fs.Bool("quiet", false, "show no progress")
	if err := parse(fs, args); err != nil {
		return o, false, err
	}
	o.URLs = fs.Args()
	switch {
	case (*file == "") == (len(o.URLs) == 0), o.Timeout <= 0:
		fs.Usage()
		return o, false, errUsage
	case !*quiet:
		o.Progress = func(subject, step string) { fmt.Fprintf(stderr, "%s: %s\n", subject, step) }
	}
	if *file != "" {
		o.Config, err = readConfig(config.Load, *file, stdout)
		return o, asJSON, err
	}
	for i, u := range o.URLs {
		if strings.HasPrefix(u, "-") {
			fmt.Fprintf(stderr, "tandem doctor: flags go before the URLs: %s\n", u)
			return o, false, errUsage
		}
		o.URLs[i] = strings.TrimRight(u, "/")
	}
	return o, asJSON, nil
}
