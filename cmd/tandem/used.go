package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-router/tandem/internal/keys"
	"github.com/tandem-router/tandem/internal/why"
	"github.com/tandem-router/tandem/orchestrator"
)

// usedCommand prints what keys have used.
func usedCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "usage FILE...", Short: "print what client keys have used, from files of usage.file",
		Long: "Adds up the lines of the files by key and model. The files of several routers add up, too. " +
			"A router writes at\neach full hour and at its end.",
		Args: between(1, math.MaxInt, "a file"),
	}
	since := c.Flags().Duration("since", 0, "count only lines that end within this `time` before now")
	c.RunE = func(c *cobra.Command, files []string) error {
		var sum keys.Usage
		after := time.Time{}
		if *since > 0 {
			after = time.Now().Add(-*since)
		}
		for _, file := range files {
			if err := addUsage(&sum, file, after); err != nil {
				return err
			}
		}
		w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(w, "KEY\tMODEL\tPROMPTS\tPROMPT TOKENS\tCACHED\tGENERATED\t")
		for _, r := range sum.Take() {
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t\n",
				why.Plain(r.Key), why.Plain(r.Model), r.Requests, r.Prompt, r.Cached, r.Generated)
		}
		return w.Flush()
	}
	return c
}

// addUsage adds the lines of a file that end after a time.
func addUsage(sum *keys.Usage, file string, after time.Time) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		var line orchestrator.UsageLine
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return fmt.Errorf("%s:%d is no line of usage; remove it: %w", file, n, err)
		}
		if line.To.After(after) {
			sum.Add(line.Used)
		}
	}
	return lines.Err()
}
