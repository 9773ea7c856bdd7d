package main

import (
	"encoding/json"
	"errors"

	"github.com/spf13/cobra"

	"github.com/tandem-router/tandem/internal/lab/replay/tiers"
)

// tiersCommand repeats a published record with host memory behind the GPUs, and plays Tandem beside it.
func tiersCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "tiers", Args: noArgs,
		Short: "repeat llm-d's record with host memory for KV, and play Tandem beside it",
		Long: "Plays llm-d's eviction-pressure record: 8 prefill and 2 decode replicas of gpt-oss-120b, and\n" +
			"10,800 requests whose prefixes take 1.32 times the memory of the prefill GPUs. Published figures\n" +
			"stand in parentheses.",
		Example: "  tandem replay tiers --seeds 3",
	}
	o := tiers.Options{Arms: tiers.Arms()}
	fs := c.Flags()
	fs.IntVar(&o.Seeds, "seeds", 1, "with which each fleet is played")
	asJSON := fs.Bool("json", false, "print JSON")
	quiet := fs.Bool("quiet", false, "no progress")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := aboveZero("seeds", float64(o.Seeds)); err != nil {
			return err
		}
		if !*quiet {
			o.Progress = newReporter(c.ErrOrStderr()).at
		}
		rows, err := tiers.Run(c.Context(), o)
		if *asJSON {
			return errors.Join(err, json.NewEncoder(c.OutOrStdout()).Encode(rows))
		}
		return errors.Join(err, tiers.Print(c.OutOrStdout(), rows))
	}
	return c
}
