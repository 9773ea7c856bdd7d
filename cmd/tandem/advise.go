package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/lab/replay"
	"github.com/tandem-router/tandem/internal/lab/replay/advise"
)

// advisedFor is how much of the traffic is played if nothing else is said. Eight replicas take about a minute
// on two cores.
const advisedFor = 150 * time.Second

// adviseCommand says whether recorded traffic is worth splitting over some replicas, and in which shape.
func adviseCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "advise", Short: "find out whether splitting pays for recorded traffic, and in which shape of fleet",
		Long: "Finds out whether splitting prefill and decode pays for some traffic on some replicas, and\n" +
			"in which ratio. Plays the traffic on one pool and on several ratios of two pools, at its own load\n" +
			"and at others. Counts the answers within two goals: usual (TTFT 5 s, TPOT 100 ms, no gap above 1 s)\n" +
			"and tight (2 s, 30 ms, 0.2 s). --slo-ttft, --slo-tpot and --slo-gap set another goal instead. The\n" +
			"last number of a --profile is the GPUs of a replica: " + strings.Join(profiles(), ", ") + ".",
		Example: "  tandem advise --trace capture.jsonl --replicas 8 --profile h100-llama-70b-4",
		Args:    noArgs,
	}
	var o adviseOptions
	o.question.Play = replay.Play{Links: "shared", Host: "measured"} // the setting nearest to real fleets
	fs := c.Flags()
	trafficFlags(c, &o.question.Play)
	o.question.Play.For = advisedFor
	fs.Lookup("for").DefValue = advisedFor.String()
	kindFlags(c, &o.question.Play)
	fs.IntVar(&o.question.Replicas, "replicas", 8, "number of replicas, each with the GPUs of the profile")
	fs.Float64Var(&o.question.Enough, "good", 0.9,
		"`share` of the answers that must keep a goal; at most 95 % of the share of an idle fleet")
	fs.BoolVar(&o.asJSON, "json", false, "print JSON")
	fs.BoolVar(&o.quiet, "quiet", false, "no progress")
	c.RunE = func(c *cobra.Command, _ []string) error { return o.run(c) }
	return c
}

// adviseOptions is what the flags of advise say.
type adviseOptions struct {
	question      advise.Question
	asJSON, quiet bool
}

func (o *adviseOptions) run(c *cobra.Command) error {
	q := &o.question
	q.Goals = goals(c.Flags(), &q.Play)
	if err := trafficThere(c.Flags(), &q.Play); err != nil {
		return err
	}
	if !o.quiet {
		r := newReporter(c.ErrOrStderr())
		r.say(fmt.Sprintf("playing %s over %d replicas of %s, in several shapes and at several loads; an "+
			"interrupt ends the search with the results so far",
			cmp.Or(q.Play.Kind, q.Play.Trace), q.Replicas, q.Play.Profile), 0)
		q.Progress = r.say
	}
	a, err := advise.Ask(c.Context(), q)
	switch {
	case a == nil:
		return err
	case o.asJSON:
		return errors.Join(err, json.NewEncoder(c.OutOrStdout()).Encode(a))
	}
	fmt.Fprintln(c.OutOrStdout(), advised(q, a.Shapes[0].Now))
	return errors.Join(err, advise.Print(c.OutOrStdout(), a))
}

// goals returns the two goals of every comparison, or the one that a flag sets.
func goals(fs *pflag.FlagSet, p *replay.Play) []advise.Goal {
	all := advise.Goals()
	fs.Visit(func(f *pflag.Flag) {
		if f.Name == "slo-ttft" || f.Name == "slo-tpot" || f.Name == "slo-gap" {
			all = []advise.Goal{advise.Own(p.SLO)}
		}
	})
	return all
}

// advised writes what was played, and on which fleet.
func advised(q *advise.Question, now *replay.Outcome) string {
	p := &q.Play
	what, part := p.Trace, "all"
	span := now.End
	if p.Kind != "" {
		what = p.Kind
	}
	if p.For > 0 {
		part = fmt.Sprint(p.For)
		span = min(span, p.For.Seconds())
	}
	more := ""
	if p.For == advisedFor {
		more = "Ten minutes of it (--for 10m) take some four times as long, and narrow the ranges below.\n"
	}
	preset, _ := core.FindPreset(p.Profile)
	each := "one GPU"
	if n := gpusOf(preset.Name); n > 1 {
		each = fmt.Sprint(n, " GPUs")
	}
	return fmt.Sprintf("%s, %s of it at --scale %g: %.2g requests a second, of which %d are counted "+
		"(the first fifth of the time fills caches)\n%d replicas of %s with %s each, Tandem with its defaults; "+
		"1x is this load\n%s",
		what, part, p.Scale, float64(now.Requests)/span, now.Measured, q.Replicas, preset.Name, each, more)
}

// profiles lists the names of the profiles of replicas.
func profiles() (names []string) {
	for _, p := range core.Presets() {
		names = append(names, p.Name)
	}
	return append(names, "8b and 70b for an H100 with one GPU and four GPUs")
}

// gpusOf reads the number at the end of a preset's name.
func gpusOf(name string) (gpus int) {
	_, err := fmt.Sscan(name[strings.LastIndexByte(name, '-')+1:], &gpus)
	if err != nil {
		return 1
	}
	return gpus
}
