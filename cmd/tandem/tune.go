package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/replay"
	"github.com/tandem-router/tandem/internal/replay/suite"
)

// runTune searches the weights of the decision on recorded traffic, and says what they would bring and where
// they would lose.
func runTune(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var p replay.Play
	fs := newFlags("tune", "[flags]", stderr)
	playFlags(fs, &p)
	file := fs.String("config", "", "`file` to begin from, whose scoring is tuned (default: the defaults)")
	objective := fs.String("objective", suite.Objectives()[0].Name,
		"what to make better: `one` of mean-ttft, p50-ttft, p90-ttft, p99-ttft, p99-tpot, goodput")
	seeds := fs.Int("seeds", 5, "that judge the result")
	quiet := fs.Bool("quiet", false, "no progress")
	if err := parseAlone(fs, args); err != nil {
		return err
	}
	cfg := config.Default()
	if *file != "" {
		var err error
		if cfg, err = config.Load(*file); err != nil {
			return err
		}
	}
	if cfg.Experimental.Scoring.Units == config.Raw {
		return fmt.Errorf("experimental.scoring.units: raw weights cannot be tuned; set them to %s", config.Seconds)
	}
	s := suite.Search{Play: p, Seeds: *seeds, From: weightsOf(cfg.Scoring)}
	var err error
	if s.Objective, err = suite.ObjectiveNamed(*objective); err != nil {
		return err
	}
	if err := trafficThere(fs, &p, ""); err != nil {
		return err
	}
	if !*quiet {
		began := time.Now()
		s.Progress = func(text string) { fmt.Fprintf(stderr, "%4.0f s  %s\n", time.Since(began).Seconds(), text) }
	}
	t, err := suite.Tune(ctx, s)
	if err != nil {
		return err
	}
	return printTuning(stdout, &s, t)
}

func weightsOf(s config.Scoring) suite.Weights {
	w := suite.Weights{Alpha: s.Alpha.Value, Beta: s.Beta, Gamma: s.Gamma, Penalty: s.DecodePenalty}
	if s.Alpha.Auto {
		w.Alpha = 0
	}
	return w
}

// printTuning writes the change of the configuration, what it brings, and where it would lose.
func printTuning(w io.Writer, s *suite.Search, t *suite.Tuning) error {
	out := bufio.NewWriter(w)
	switch from := s.From; {
	case t.Weights == from:
		fmt.Fprintf(out, "nothing better was found in %d tries: the weights stay as they are\n", t.Tried)
	case t.Gain.Value <= 0:
		fmt.Fprintf(out, "nothing better was found in %d tries: what was best on the first half of the time has "+
			"%s %s on all of it, + is better; the weights stay as they are\n",
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

func interval(e suite.Estimate) string {
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
