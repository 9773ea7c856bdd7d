package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// verdict has the results of a phase.
//
// Long: one field per figure of the table.
type verdict struct {
	kinds     []kindCount
	requests  int
	different int
	modes     map[string]int
	retried   int
	known     int // prompts with both prediction and truth known
	exact     int
	error     float64 // mean of the absolute error, tokens
	missed    []record
	slowest   time.Duration
	median    time.Duration
	// Prompts whose tokens Tandem never learned: they are not split, and have no prediction.
	guessed int
	// Known prompts with a changed situation after the prediction: a prompt without token ids was computed
	// beside them, so they found more tokens; or another prompt of the same batch was, and its blocks evicted
	// theirs. They count neither as exact nor as missed.
	unforeseen int
	either     bool        // the router may choose to split nothing
	scarcity   *scarcity   // nil if not measured
	pieces     *piecesSent // nil if prompts are split
}

type kindCount struct {
	kind                         string
	requests, streams, different int
}

func judge(results []result, records []record) *verdict {
	v := &verdict{requests: len(results), modes: map[string]int{}}
	took := make([]time.Duration, 0, len(results))
	for _, r := range results {
		k := v.kind(r.kind)
		k.requests++
		if r.body["stream"] == true {
			k.streams++
		}
		if r.diff != "" {
			k.different++
			v.different++
		}
		took = append(took, r.took)
	}
	slices.Sort(took)
	if len(took) > 0 {
		v.median, v.slowest = took[len(took)/2], took[len(took)-1]
	}
	for _, r := range records {
		v.addRecord(r, records)
	}
	if n := v.known - v.unforeseen; n > 0 {
		v.error /= float64(n)
	}
	return v
}

func (v *verdict) kind(name string) *kindCount {
	i := slices.IndexFunc(v.kinds, func(k kindCount) bool { return k.kind == name })
	if i < 0 {
		i = len(v.kinds)
		v.kinds = append(v.kinds, kindCount{kind: name})
	}
	return &v.kinds[i]
}

// addRecord counts a decision. If Tandem or the engine has no number (an unknown index, n > 1), nothing can
// be compared.
func (v *verdict) addRecord(r record, all []record) {
	v.modes[r.Mode]++
	if r.Attempts > 1 {
		v.retried++
	}
	if r.Tokenizer == "estimate" && r.Outcome == "ok" {
		v.guessed++
		return
	}
	if r.Captured < 0 || r.Delivered < 0 || r.Outcome != "ok" {
		return
	}
	v.known++
	switch {
	case r.Captured == r.Delivered:
		v.exact++
		return
	case r.Captured < r.Delivered && slices.ContainsFunc(all, r.besideUnknown),
		r.Captured > r.Delivered && slices.ContainsFunc(all, r.besideSibling):
		v.unforeseen++
		return
	}
	v.error += math.Abs(float64(r.Captured - r.Delivered))
	v.missed = append(v.missed, r)
}

// besideUnknown reports whether o was computed beside r while Tandem did not know the tokens of o. The blocks
// of o are cached as soon as its step is scheduled, and no event reports them before the end of this step.
func (r *record) besideUnknown(o record) bool { return o.Tokenizer == "estimate" && r.beside(&o) }

// besideSibling reports whether o is another prompt of r's batch and was computed beside r. The prompts of a
// batch are planned together. In the small caches of the suite, the blocks of one prompt evict blocks that
// another prompt expected.
func (r *record) besideSibling(o record) bool { return r.batch() == o.batch() && r.beside(&o) }

// batch is the id of the request of a record. The prompts of a batch have a number after it.
func (r *record) batch() string {
	id, _, _ := strings.Cut(r.ID, "-")
	return id
}

// beside reports whether o was computed on the engine of r's prompt, between the arrival of r and its first
// token.
func (r *record) beside(o *record) bool {
	computes := func(r *record) string { return cmp.Or(r.Prefill, r.Decode) }
	ms := func(x float64) time.Duration { return time.Duration(x * float64(time.Millisecond)) }
	return o.ID != r.ID && computes(o) == computes(r) &&
		o.Time.Before(r.Time.Add(ms(r.Phases.First))) && o.Time.Add(ms(o.Phases.First)).After(r.Time)
}

// print writes the table of the phase.
func (v *verdict) print(w io.Writer, ph phase, took, idle time.Duration) {
	fmt.Fprintf(w, "\n%s\n\n", ph.name)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  kind\trequests\tstreamed\tdifferent")
	for _, k := range v.kinds {
		fmt.Fprintf(t, "  %s\t%d\t%d\t%d\n", k.kind, k.requests, k.streams, k.different)
	}
	fmt.Fprintf(t, "  all\t%d\t\t%d\n", v.requests, v.different)
	_ = t.Flush()
	fmt.Fprintf(w,
		"\n  placed       split %d, local %d, un-split %d, nowhere %d prompts; more than one attempt: %d\n",
		v.modes["split"], v.modes["local"], v.modes["unsplit"], v.modes["none"], v.retried)
	fmt.Fprintf(w,
		"  prediction   %d of %d exact, %.2f %% (at least %.0f %%), mean error %.2f tokens; changed "+
			"by what ran beside: %d; not predicted, since not tokenized: %d\n",
		v.exact, v.known-v.unforeseen, 100*v.share(), 100*ph.predicted, v.error, v.unforeseen, v.guessed)
	for _, r := range v.missed {
		fmt.Fprintf(w, "               %s %s %s > %s: predicted %d of %d, found %d\n",
			r.ID, r.Mode, r.Prefill, r.Decode, r.Captured, r.Prompt, r.Delivered)
	}
	fmt.Fprintf(w, "  answers      median %.2f s, slowest %.2f s, all in %.0f s\n",
		v.median.Seconds(), v.slowest.Seconds(), took.Seconds())
	if v.scarcity != nil {
		v.scarcity.print(w)
	}
	if v.pieces != nil {
		v.pieces.print(w)
	}
	fmt.Fprintf(w, "  engines      no block in use %.2f s after the last answer\n\n", idle.Seconds())
}

// share of the known predictions that were exact.
func (v *verdict) share() float64 {
	if v.known == v.unforeseen {
		return 0
	}
	return float64(v.exact) / float64(v.known-v.unforeseen)
}

// verdict returns the failed checks.
func (v *verdict) verdict(predicted float64) error {
	var errs []error
	if v.different > 0 {
		errs = append(errs, fmt.Errorf("%d of %d answers differ", v.different, v.requests))
	}
	switch {
	case v.pieces != nil:
		errs = append(errs, v.pieces.verdict(v.requests))
	case v.modes["split"] == 0 && !v.either:
		errs = append(errs, errors.New("nothing was split"))
	}
	if v.share() < predicted {
		errs = append(errs,
			fmt.Errorf("%.2f %% of the predictions were exact, fewer than %.0f %%", 100*v.share(),
				100*predicted))
	}
	if 8*v.unforeseen > v.known {
		errs = append(errs, fmt.Errorf("what ran beside changed %d of %d predictions: more than an eighth "+
			"is no chance", v.unforeseen, v.known))
	}
	if v.error >= blockTokens {
		errs = append(errs, fmt.Errorf("predictions are wrong by %.1f tokens on average, a block or more",
			v.error))
	}
	return errors.Join(errs...)
}
