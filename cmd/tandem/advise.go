package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/tandem-router/tandem/internal/enginesim/core"
	"github.com/tandem-router/tandem/internal/replay"
	"github.com/tandem-router/tandem/internal/replay/advise"
)

// advisedFor is how much of the traffic is played if nothing else is said.
const advisedFor = 10 * time.Minute

// runAdvise says whether recorded traffic is worth splitting over some replicas, and in which shape.
func runAdvise(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	q := advise.Question{Play: replay.Play{Links: "shared", Host: "measured"}} // what is nearest to real fleets
	fs := newFlags("advise", "[flags]\n\n"+
		"Says whether to split a traffic over so many replicas, and in which shape. It is played in one pool\n"+
		"and in shapes that split, at its own load and at others, and each shape is held to two goals: usual\n"+
		"(5 s; 100 ms a token; no gap above 1 s) and tight (2 s; 30 ms; 0.2 s), or instead to yours (-slo-ttft,\n"+
		"-slo-tpot, -slo-gap). A replica has the GPUs that its -profile ends with:\n"+
		strings.Join(profiles(), ", ")+".", stderr)
	trafficFlags(fs, &q.Play)
	q.Play.For = advisedFor
	fs.Lookup("for").DefValue = advisedFor.String()
	kind := kindFlags(fs, &q.Play)
	fs.IntVar(&q.Replicas, "replicas", 8, "that there are, each with the GPUs of the profile")
	fs.Float64Var(&q.Enough, "good", 0.9,
		"`share` of the answers that has to keep a goal, or 95 % of what an idle fleet has where that is less")
	asJSON := fs.Bool("json", false, "print JSON")
	quiet := fs.Bool("quiet", false, "no progress")
	if err := parseAlone(fs, args); err != nil {
		return err
	}
	q.Goals = goals(fs, &q.Play)
	if err := trafficThere(fs, &q.Play, *kind); err != nil {
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
	if _, err := fmt.Fprintln(stdout, advised(&q, a.Shapes[0].Now)); err != nil {
		return err
	}
	return advise.Print(stdout, a)
}

// goals are the two that everything is held to, or the one that a flag tells.
func goals(fs *flag.FlagSet, p *replay.Play) []advise.Goal {
	all := advise.Goals()
	fs.Visit(func(f *flag.Flag) {
		if f.Name == "slo-ttft" || f.Name == "slo-tpot" || f.Name == "slo-gap" {
			all = []advise.Goal{advise.Own(p.SLO)}
		}
	})
	return all
}

// advised says what was played, and on what.
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
	preset, _ := core.FindPreset(p.Profile)
	each := "one GPU"
	if n := gpusOf(preset.Name); n > 1 {
		each = fmt.Sprint(n, " GPUs")
	}
	return fmt.Sprintf("%s, %s of it at -scale %g: %.2g requests a second, of which %d are counted "+
		"(the first fifth of the time fills caches)\n%d replicas of %s with %s each, Tandem with its defaults; "+
		"1x is this load\n",
		what, part, p.Scale, float64(now.Requests)/span, now.Measured, q.Replicas, preset.Name, each)
}

// profiles are the names of what replicas can be.
func profiles() (names []string) {
	for _, p := range core.Presets() {
		names = append(names, p.Name)
	}
	return append(names, "8b and 70b for those of an H100 with one and four GPUs")
}

// gpusOf reads the number at the end of a preset's name.
func gpusOf(name string) (gpus int) {
	_, err := fmt.Sscan(name[strings.LastIndexByte(name, '-')+1:], &gpus)
	if err != nil {
		return 1
	}
	return gpus
}
