package main

import (
	"encoding/json"
	"errors"

	"github.com/spf13/cobra"

	"github.com/tandem-router/tandem/internal/lab/replay/tiers"
)

// tiersCommand repeats a published record with host memory behind the GPUs, and plays Tandem beside it.
func tiersCommand() *cobra.Command {
	return recordCommand(
		tiers.HostMemory(), "tiers", "repeat llm-d's record with host memory, and play Tandem beside it",
		"Plays llm-d's eviction-pressure record: 8P2D, gpt-oss-120b, prefixes of 1.32 times the GPUs' memory.")
}

// preciseCommand repeats the published record of llm-d's precise guide, and plays Tandem beside it.
func preciseCommand() *cobra.Command {
	return recordCommand(
		tiers.Guide(), "precise", "repeat the record of llm-d's precise guide, and play Tandem beside it",
		"Plays the record of llm-d's precise guide: 8 replicas of Qwen3-32B on two H100 each, nothing split,\n"+
			"and 17,084 requests with 150 prefixes at 3 to 60 a second.")
}

func recordCommand(r tiers.Record, name, short, long string) *cobra.Command {
	long += " Published figures stand in parentheses."
	c := &cobra.Command{Use: name, Args: noArgs, Short: short, Long: long}
	o := tiers.Options{Record: r}
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
