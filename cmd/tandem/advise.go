package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"time"

	"tandem/internal/replay"
	"tandem/internal/replay/advise"
)

// advisedFor is how much of the traffic is played if nothing else is said.
const advisedFor = 10 * time.Minute

// runAdvise says whether recorded traffic is worth splitting over some replicas, and in which shape.
func runAdvise(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	q := advise.Question{Play: replay.Play{Links: "shared", Host: "measured"}} // what is nearest to real fleets
	fs := newFlags("advise", "[flags]", stderr)
	trafficFlags(fs, &q.Play)
	q.Play.For = advisedFor
	fs.Lookup("for").DefValue = advisedFor.String()
	kind := kindFlags(fs, &q.Play)
	fs.IntVar(&q.Replicas, "replicas", 8, "that there are, each with the GPUs of the profile")
	fs.Float64Var(&q.Enough, "good", 0.9, "`share` of the answers that has to keep a goal")
	asJSON := fs.Bool("json", false, "print JSON")
	quiet := fs.Bool("quiet", false, "no progress")
	if err := parseAlone(fs, args); err != nil {
		return err
	}
	q.Goals = advise.Goals()
	fs.Visit(func(f *flag.Flag) {
		if f.Name == "slo-ttft" || f.Name == "slo-tpot" || f.Name == "slo-gap" {
			q.Goals = []advise.Goal{advise.Own(q.Play.SLO)}
		}
	})
	if err := trafficThere(&q.Play, *kind); err != nil {
		return err
	}
	if !*quiet {
		q.Progress = since(stderr, time.Now())
	}
	a, err := advise.Ask(ctx, &q)
	if err != nil {
		return err
	}
	if *asJSON {
		return json.NewEncoder(stdout).Encode(a)
	}
	if _, err := fmt.Fprintln(stdout, advised(&q)); err != nil {
		return err
	}
	return advise.Print(stdout, a)
}

// advised says what was played.
func advised(q *advise.Question) string {
	p := &q.Play
	what, part := p.Trace, "all"
	if p.Kind != "" {
		what = p.Kind
	}
	if p.For > 0 {
		part = fmt.Sprint(p.For)
	}
	return fmt.Sprintf("%s, %s of it at %gx, on %d replicas of %s with Tandem's defaults", what, part, p.Scale,
		q.Replicas, p.Profile)
}
