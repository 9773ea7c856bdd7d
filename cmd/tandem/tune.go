package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/lab/replay/claims"
)

// tuneCommand searches the weights of the decision on recorded traffic. It prints what these weights would
// gain and where they would lose.
func tuneCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "tune",
		Short: "search the weights of the decision on recorded traffic; print what they gain and lose",
		Args:  noArgs,
	}
	var o tuneOptions
	fs := c.Flags()
	playFlags(c, &o.search.Play)
	fs.StringVar(&o.file, "config", "", "`file` with the scoring to begin from (default: Tandem's defaults)")
	var names []string
	for _, one := range claims.Objectives() {
		names = append(names, one.Name)
	}
	fs.StringVar(&o.objective, "objective", names[0], "objective: `one` of "+strings.Join(names, ", "))
	fs.IntVar(&o.search.Seeds, "seeds", 5, "number of seeds by which the result is judged")
	fs.BoolVar(&o.quiet, "quiet", false, "no progress")
	choices(c, "objective", names...)
	c.RunE = func(c *cobra.Command, _ []string) error { return o.run(c) }
	return c
}

// tuneOptions is what the flags of tune say.
type tuneOptions struct {
	search    claims.Search
	file      string
	objective string
	quiet     bool
}

func (o *tuneOptions) run(c *cobra.Command) error {
	cfg := config.Default()
	if o.file != "" {
		var err error
		if cfg, err = config.Load(o.file); err != nil {
			return err
		}
	}
	if cfg.Experimental.Scoring.Units == config.Raw {
		return fmt.Errorf("experimental.scoring.units: raw weights cannot be tuned; set them to %s", config.Seconds)
	}
	s := &o.search
	s.From = weightsOf(cfg.Scoring)
	var err error
	if s.Objective, err = claims.ObjectiveNamed(o.objective); err != nil {
		return wrongValue("--objective: %s", err)
	}
	if err := trafficThere(c.Flags(), &s.Play); err != nil {
		return err
	}
	if !o.quiet {
		r := newReporter(c.ErrOrStderr())
		r.say(fmt.Sprintf("tuning %s on %s over %s: up to %d weights are tried; --help has other choices",
			o.objective, cmp.Or(s.Play.Kind, s.Play.Trace), s.Play.Cluster, s.Most()), 0)
		s.Progress = r.say
	}
	t, err := claims.Tune(c.Context(), *s)
	if err != nil {
		return err
	}
	return printTuning(c.OutOrStdout(), s, t)
}

func weightsOf(s config.Scoring) claims.Weights {
	w := claims.Weights{Alpha: s.Alpha.Value, Beta: s.Beta, Gamma: s.Gamma, Penalty: s.DecodePenalty}
	if s.Alpha.Auto {
		w.Alpha = 0
	}
	return w
}

// printTuning writes the change of the configuration, its gain, and where it would lose.
func printTuning(w io.Writer, s *claims.Search, t *claims.Tuning) error {
	out := bufio.NewWriter(w)
	switch from := s.From; {
	case t.Weights == from:
		fmt.Fprintf(out, "nothing better was found in %d tries: the weights stay as they are\n", t.Tried)
	case t.Gain.Value <= 0:
		fmt.Fprintf(out, "nothing better was found in %d tries: the best weights on the first half change "+
			"%s by %s on the whole time, + is better; the weights stay as they are\n",
			t.Tried, s.Objective.Name, interval(t.Gain))
	default:
		fmt.Fprintln(out, " scoring:")
		change(out, "alpha", alphaText(from.Alpha), alphaText(t.Weights.Alpha))
		change(out, "beta", number(from.Beta), number(t.Weights.Beta))
		change(out, "gamma", number(from.Gamma), number(t.Weights.Gamma))
		change(out, "decode_penalty", number(from.Penalty), number(t.Weights.Penalty))
		fmt.Fprintf(out,
			"\n%s: %s, + is better, over %d seeds (%d weights tried on the first half of the time, "+
				"judged on all of it)\n",
			s.Objective.Name, interval(t.Gain), max(1, s.Seeds), t.Tried)
		if t.Gain.Low <= 0 {
			fmt.Fprintln(out, "That may be chance: the interval includes none at all. Keep the weights as they are, "+
				"or tune on a longer trace.")
		}
		loses := 0
		for _, e := range t.Others {
			mark := ""
			if e.Loses() {
				mark, loses = "   <- loses", loses+1
			}
			fmt.Fprintf(out, "  %-26s %s%s\n", e.Name, interval(e.Gain), mark)
		}
		if loses == 0 {
			fmt.Fprintln(out, "It is surely worse in none of these.")
		}
	}
	return out.Flush()
}

func interval(e claims.Estimate) string {
	return fmt.Sprintf("%+.1f %% (95 %%: %+.1f to %+.1f)", 100*e.Value, 100*e.Low, 100*e.High)
}

func change(w io.Writer, key, from, to string) {
	if from != to {
		fmt.Fprintf(w, "-  %s: %s\n+  %s: %s\n", key, from, key, to)
	}
}

func alphaText(v float64) string {
	if v == 0 {
		return "auto"
	}
	return number(v)
}

func number(v float64) string { return strings.TrimSuffix(strconv.FormatFloat(v, 'g', -1, 64), ".0") }
