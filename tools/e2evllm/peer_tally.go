package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// trial is one request to a rival.
type trial struct {
	kind string
	name string
	play func(context.Context) verdictOf
}

// verdictOf is the result of one case. leaked reports that the answer shows a secret, in addition to the
// outcome.
type verdictOf struct {
	outcome string
	why     string
	leaked  bool

	open     bool // an engine's admin path answered
	patience bool // an engine may be dying: the answer is no refusal
}

// bad reports an answer that is neither right nor a refusal.
func (v verdictOf) bad() bool { return v.outcome != rightText && v.outcome != refusal }

// tally has the results of the trials with one rival.
type tally struct {
	name    string
	sent    int
	counts  map[string]int // by outcome
	bad     map[string]int // by kind: answers that are neither right nor refusals
	leaked  int
	open    int
	lost    int            // engines
	killers map[string]int // engines lost, by the kind of the request
	unsent  map[string]int // by kind
	idle    time.Duration  // until no engine held a block
}

// spared is the number of engines that a kind may kill. Its other requests are not sent: each would cost the
// restart of an engine, a minute.
const spared = 2

// run plays the trials one after another. After each it looks for lost engines, and restarts everything if
// there are any.
func (t *tally) run(
	ctx context.Context, trials []trial, lost func(ctx context.Context, patience bool) []string,
	anew func() error,
) error {
	t.counts = map[string]int{}
	t.bad = map[string]int{}
	t.killers = map[string]int{}
	t.unsent = map[string]int{}
	said := time.Now()
	for _, x := range trials {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if t.killers[x.kind] >= spared {
			t.unsent[x.kind]++
			continue
		}
		v := x.play(ctx)
		t.note(x, v)
		if gone := lost(ctx,
			v.bad() && (v.patience || v.outcome == serverSide || v.outcome == noAnswer)); len(gone) > 0 {
			say("%s: LOST %s by %s %s", t.name, strings.Join(gone, " "), x.kind, x.name)
			t.lost += len(gone)
			t.killers[x.kind] += len(gone)
			if err := anew(); err != nil {
				return err
			}
		}
		if time.Since(said) > 15*time.Second {
			said = time.Now()
			say("%s: %d of %d", t.name, t.sent, len(trials))
		}
	}
	return nil
}

// note counts one trial.
func (t *tally) note(x trial, v verdictOf) {
	t.sent++
	t.counts[v.outcome]++
	if v.leaked {
		t.leaked++
	}
	if v.open {
		t.open++
	}
	if v.bad() {
		t.bad[x.kind]++
		say("%s: %s: %s %s: %.300s", t.name, v.outcome, x.kind, x.name, v.why)
	}
}

func printTallies(w io.Writer, what string, tallies []*tally) {
	fmt.Fprintf(w, "\nthe same %s before the same engines\n\n", what)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name string, of func(*tally) any) {
		fmt.Fprintf(tw, "  %s", name)
		for _, t := range tallies {
			fmt.Fprintf(tw, "\t%v", of(t))
		}
		fmt.Fprintln(tw)
	}
	row("", func(t *tally) any { return t.name })
	row("requests sent", func(t *tally) any { return t.sent })
	for _, outcome := range []string{rightText, refusal, notRight, notClear, serverSide, noAnswer, leaked} {
		row(outcome, func(t *tally) any { return t.counts[outcome] })
	}
	row("answers that show secrets", func(t *tally) any { return t.leaked })
	row("administration paths answered", func(t *tally) any { return t.open })
	row("engines lost", func(t *tally) any { return t.lost })
	row("not sent, since such requests had cost engines", func(t *tally) any { return total(t.unsent) })
	row("no block in use after, s", func(t *tally) any { return fmt.Sprintf("%.2f", t.idle.Seconds()) })
	_ = tw.Flush()
	for _, t := range tallies {
		fmt.Fprintf(w, "\n  %s: not right: %s; lost engines: %s; not sent: %s\n",
			t.name, byKind(t.bad), byKind(t.killers), byKind(t.unsent))
	}
	fmt.Fprintln(w)
}

func total(counts map[string]int) (sum int) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// byKind lists counts in the order of their names.
func byKind(counts map[string]int) string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", kind, counts[kind]))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
