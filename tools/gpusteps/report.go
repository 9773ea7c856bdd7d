package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// report prints how one model's steps compare with the formula.
func report(w io.Writer, steps []step) error {
	cost, err := fit(steps)
	if err != nil {
		return fmt.Errorf("%s, %s: %w", steps[0].GPU, steps[0].Model, err)
	}
	_, err = fmt.Fprintf(w, "%s, %s\n"+
		"  prompts %.1f ms + %.1f us a token + %.2f ns a pair; streams %.1f ms + %.1f us each + %.1f ns a token\n",
		steps[0].GPU, steps[0].Model, cost.T0*1e3, cost.A*1e6, cost.B*1e9, cost.D0*1e3, cost.D1*1e6, cost.D2*1e9)
	if err != nil {
		return err
	}
	for _, kind := range []struct {
		name string
		is   func(*step) bool
	}{
		{"prompts alone", func(s *step) bool { return s.Streams == 0 }},
		{"streams alone", func(s *step) bool { return s.New == 0 }},
		{"a prompt beside streams", (*step).mixed},
	} {
		r := ratios(steps, cost, kind.is)
		if len(r) == 0 {
			continue
		}
		if _, err := fmt.Fprintf(w, "  %s: %.2f times what it says in the median, %.2f to %.2f\n",
			kind.name, r[len(r)/2], r[0], r[len(r)-1]); err != nil {
			return err
		}
	}
	if r := attention(steps); len(r) > 0 {
		if _, err := fmt.Fprintf(w, "  attention of both in one launch: %.2f times the two alone in the median, "+
			"%.2f to %.2f in eight of ten, %.2f to %.2f\n",
			r[len(r)/2], r[len(r)/10], r[len(r)*9/10], r[0], r[len(r)-1]); err != nil {
			return err
		}
	}
	return table(w, steps, cost)
}

// attention returns, in order, the time of attention in mixed steps divided by the sum of its times in the
// same prompt alone and the same streams alone.
func attention(steps []step) (r []float64) {
	find := func(is func(*step) bool) *step {
		if at := slices.IndexFunc(steps, func(s step) bool { return is(&s) }); at >= 0 {
			return &steps[at]
		}
		return nil
	}
	for i := range steps {
		both := &steps[i]
		if !both.mixed() {
			continue
		}
		prompt := find(func(s *step) bool { return s.Streams == 0 && s.samePrompt(*both) })
		streams := find(func(s *step) bool { return s.New == 0 && s.sameStreams(*both) })
		if prompt != nil && streams != nil {
			r = append(r, both.Attention/(prompt.Attention+streams.Attention))
		}
	}
	slices.Sort(r)
	return r
}

// table prints each prompt with each batch of streams.
func table(w io.Writer, steps []step, cost core.Cost) error {
	var columns, rows []step // the streams and prompts of the table
	for _, s := range steps {
		if !s.mixed() {
			continue
		}
		if !slices.ContainsFunc(columns, s.sameStreams) {
			columns = append(columns, s)
		}
		if !slices.ContainsFunc(rows, s.samePrompt) {
			rows = append(rows, s)
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "  new tokens, after\t")
	for _, c := range columns {
		fmt.Fprintf(t, "%d of %d\t", c.Streams, c.Context)
	}
	fmt.Fprintln(t)
	for _, row := range rows {
		fmt.Fprintf(t, "  %d, %d\t", row.New, row.Computed)
		for _, column := range columns {
			r := ratios(steps, cost, func(s *step) bool { return s.samePrompt(row) && s.sameStreams(column) })
			if len(r) == 0 {
				fmt.Fprint(t, "\t")
				continue
			}
			fmt.Fprintf(t, "%.2f\t", r[0])
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

func (s *step) sameStreams(o step) bool { return s.Streams == o.Streams && s.Context == o.Context }
func (s *step) samePrompt(o step) bool  { return s.New == o.New && s.Computed == o.Computed }
