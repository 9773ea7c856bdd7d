package main

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-router/tandem/internal/why"
)

// whyCommand shows the reasons for a request's replicas: from the memory of a running router, or from its
// file of decisions.
func whyCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "why ID", Short: "explain where a request went and why, and what other weights would have chosen",
		Long: "Shows why a request went to its replicas. With other weights (--alpha, ...) it also shows " +
			"the plan that they would have chosen.\nID is the X-Request-Id of the answer. " + adminNote,
		Args: between(1, 1, "one request by its id"),
	}
	file := c.Flags().String("file", "",
		"read this `file` of decisions (decisions.file) and its older parts")
	admin := adminFlag(c)
	var w why.Weights
	weight := func(name string, to **float64) {
		c.Flags().Func(name, "use this `number` as the weight", func(s string) error {
			v, err := strconv.ParseFloat(s, 64)
			if err != nil || !(v >= 0) || math.IsInf(v, 0) {
				return errors.New("choose a number from 0 up")
			}
			*to = &v
			return nil
		})
	}
	weight("alpha", &w.Alpha)
	weight("beta", &w.Beta)
	weight("gamma", &w.Gamma)
	weight("decode-penalty", &w.DecodePenalty)
	c.RunE = func(c *cobra.Command, args []string) error {
		r, err := findRecord(c.Context(), *file, *admin, args[0])
		if err != nil {
			return err
		}
		return r.Page(c.OutOrStdout(), w)
	}
	return c
}

func findRecord(ctx context.Context, file, admin, id string) (*why.Record, error) {
	if file != "" {
		return why.InFiles(file, id)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return why.At(ctx, adminURL(admin), adminToken(), id)
}
