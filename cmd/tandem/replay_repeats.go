package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/trace"
)

// repeatsCommand counts which requests of traces repeat an earlier one.
func repeatsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "repeats [TRACE...]", Short: "count the requests of traces that repeat an earlier one",
		Long: "Counts the requests of recorded traffic that repeat an earlier one, and how much an answer cache\n" +
			"could save at most. Without a trace it reads the traces of examples/traces.",
	}
	ttl := c.Flags().Duration("ttl", config.Default().AnswerCache.TTL, "`time` that the cache keeps an answer")
	c.RunE = func(c *cobra.Command, files []string) error {
		if len(files) == 0 {
			var err error
			if files, err = filepath.Glob(filepath.Join(shippedTraces(), "*.gz")); err != nil {
				return err
			}
			slices.Sort(files)
		}
		return printRepeats(c.OutOrStdout(), files, *ttl)
	}
	return c
}

func printRepeats(stdout io.Writer, files []string, ttl time.Duration) error {
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "trace\trequests\tknown prompts\tsame prompt\tsurely\tas long an answer\thits"+
		"\tprompt tokens\tanswer tokens")
	for _, file := range files {
		sessions, err := readTrace(file)
		if err != nil {
			return err
		}
		r := trace.Repeating(sessions, ttl)
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", filepath.Base(file), r.Calls, r.Named,
			percent(r.Equal, r.Calls), percent(r.Sure, r.Calls), percent(r.Alike, r.Calls), percent(r.Hits, r.Calls),
			percent(r.HitPrompt, r.Prompt), percent(r.HitAnswer, r.Answer))
	}
	return w.Flush()
}

// readTrace reads all of a file.
func readTrace(file string) ([]*trace.Session, error) {
	if err := traceThere(file); err != nil {
		return nil, err
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := trace.Open(f, file, trace.Options{})
	if err != nil {
		return nil, err
	}
	return r.All()
}

// percent is a share, "-" of nothing.
func percent(part, whole int) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f %%", 100*float64(part)/float64(whole))
}
