package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tandem-router/tandem/internal/lab/replay"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/internal/lab/replay/policies"
)

// replayCommand plays recorded traffic in virtual time, or checks the simulated engines of such plays.
func replayCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "replay", Short: "play recorded traffic in virtual time; compare the simulated engines with real runs",
		Long: "Plays recorded traffic in virtual time on simulated engines, with Tandem's decision and with\n" +
			"the policies of other routers. Without flags it plays the conversation trace of examples/traces\n" +
			"on 8 prefill and 8 decode replicas.",
		Example: "  tandem replay --policy tandem,llm-d,kv-aware --cluster 4P4D --for 10m\n" +
			"  tandem replay --kind agents --html page.html",
		Args: noArgs,
	}
	var o replayOptions
	fs := c.Flags()
	playFlags(c, &o.play)
	fs.StringVar(&o.policies, "policy", "tandem,round-robin",
		"`policies`, of "+strings.Join(policies.Names(), ", ")+"; or all")
	fs.BoolVar(&o.play.Tuned, "tuned", false, "also play each policy with the best value of its main "+
		"parameter, which is searched on the first half of the time with another seed")
	fs.BoolVar(&o.asJSON, "json", false, "print JSON")
	fs.StringVar(&o.page.file, "html", "", "also write a page with plots to this `file`")
	fs.StringVar(&o.page.loads, "loads", "", "for --html: play also these `shares` of the load, as 0.5,1,1.5")
	fs.BoolVar(&o.quiet, "quiet", false, "no progress")
	kindFlags(c, &o.play)
	lists(c, "policy", append(policies.Names(), "all")...)
	c.RunE = func(c *cobra.Command, _ []string) error { return o.run(c) }
	mixFlags(fs, &o.play)
	c.AddCommand(
		validateCommand(), claimsCommand(), captureCommand(), kindsCommand(), gridCommand(), repeatsCommand(),
		ablateCommand(), classesCommand(), preciseCommand(), tiersCommand())
	return c
}

// mixFlags give classes and tenants to the sessions of the traffic.
func mixFlags(fs *pflag.FlagSet, p *replay.Play) {
	mix := func() *cluster.Mix {
		if p.Mix == nil {
			p.Mix = &cluster.Mix{}
		}
		return p.Mix
	}
	fs.Func("classes", "give each session one of these `classes`, in equal shares, with goals for TTFT "+
		"and TPOT: fast=500ms/20ms,slow=10s/200ms", func(text string) (err error) {
		mix().Classes, err = cluster.ParseClasses(text)
		return err
	})
	fs.Func("tenants", "give sessions to tenants, in these `shares`: 10,1,1", func(text string) (err error) {
		mix().Tenants, err = cluster.ParseTenants(text)
		return err
	})
}

// replayOptions is what the flags of replay say.
type replayOptions struct {
	play     replay.Play
	policies string
	page     drawing
	asJSON   bool
	quiet    bool
}

func (o *replayOptions) run(c *cobra.Command) error {
	if err := trafficThere(c.Flags(), &o.play); err != nil {
		return err
	}
	o.play.Policies = strings.Split(o.policies, ",")
	if o.policies == "all" {
		o.play.Policies = policies.Names()
	}
	var all []replay.Outcome // with an error: the policies that were played before it
	var err error
	if o.page.file != "" {
		all, err = o.page.play(c.Context(), o.play, c.ErrOrStderr())
	} else {
		var told func(string, time.Duration)
		if told, err = progress(c.ErrOrStderr(), &o.play, o.quiet); err != nil {
			return err
		}
		all, err = o.play.Run(c.Context(), told)
	}
	if o.asJSON {
		return errors.Join(err, json.NewEncoder(c.OutOrStdout()).Encode(all))
	}
	return errors.Join(err, replay.PrintOutcomes(c.OutOrStdout(), all))
}

// kindFlags are the flags for composed traffic instead of a trace.
func kindFlags(c *cobra.Command, p *replay.Play) {
	c.Flags().StringVar(&p.Traces, "traces", shippedTraces(), "`folder` of the files for --kind")
	c.Flags().String("kind", "", "play this `kind` of traffic instead of a trace (see tandem replay kinds)")
	choices(c, "kind", kindNames()...)
}

// trafficThere applies the flag --kind to p, and checks that there is traffic to play.
func trafficThere(fs *pflag.FlagSet, p *replay.Play) (err error) {
	if err := playable(p); err != nil {
		return err
	}
	kind := ""
	fs.Visit(func(f *pflag.Flag) {
		if f.Name == "kind" {
			kind = f.Value.String()
		}
	})
	if kind == "" {
		return traceThere(p.Trace)
	}
	fs.Visit(func(f *pflag.Flag) {
		if f.Name == "trace" || f.Name == "arrivals" {
			err = wrongUse("--%s and --kind exclude each other: leave one out", f.Name)
		}
	})
	if err != nil {
		return err
	}
	*p, err = p.OfKind(kind)
	return err
}

// playable names the first flag whose number makes a play impossible.
func playable(p *replay.Play) error {
	for _, f := range []struct {
		name string
		got  float64
		zero bool // means something
	}{
		{"scale", p.Scale, false},
		{"cache", p.Cache, false},
		{"link", p.Link, false},
		{"rate", p.Rate, false},
		{"for", p.For.Seconds(), true},
		{"host-memory", p.Memory, true},
		{"step", float64(p.Step), true},
		{"max-len", float64(p.MaxLen), false},
		{"event-lag", p.EventLag.Seconds(), true},
		{"poll", p.Poll.Seconds(), false},
		{"slo-ttft", p.SLO.TTFT.Seconds(), false},
		{"slo-tpot", p.SLO.TPOT.Seconds(), false},
		{"slo-gap", p.SLO.Gap.Seconds(), true},
	} {
		if f.got == 0 && f.zero {
			continue
		}
		if err := aboveZero(f.name, f.got); err != nil {
			return err
		}
	}
	return nil
}

// aboveZero refuses values that are not finite numbers above 0. The error names the flag.
func aboveZero(name string, got float64) error {
	if !(got > 0) || math.IsInf(got, 0) {
		return wrongValue("--%s is %g: choose a number above 0", name, got)
	}
	return nil
}

// playFlags are the flags for the traffic and the fleet of a play.
func playFlags(c *cobra.Command, p *replay.Play) {
	fs := c.Flags()
	trafficFlags(c, p)
	fs.StringVar(&p.Cluster, "cluster", "8P8D",
		"prefill and decode `replicas`: 8P8D, 4P4~0.6P8D, 6P2D+2P6D@4, 8P8Dx4, or a .yaml file")
	fs.Float64Var(&p.Memory, "host-memory", 0, "host memory for KV, as a multiple of the GPUs' own; 0 for none")
	fs.BoolVar(&p.Pulls, "p2p", false,
		"prefill engines can pull the beginning of a prompt from --host-memory of another engine (vLLM's P2P tier)")
	fs.StringVar(&p.Troubles, "trouble", "",
		"failures of replicas, `replica:failure@begin+length`, separated by commas: d0:fail@2m+1m (every answer "+
			"is an error), p1:fail=0.3@2m+1m (a share of them), d2:slow=20@1m+30s (20 times slower), p3:gone@2m+1m")
	misstateFlag(fs, &p.Misstated)
}

// misstateFlag sets the wrong facts that routers get.
func misstateFlag(fs *pflag.FlagSet, misstated *cluster.Misstated) {
	fs.Func("misstate", "give routers wrong `facts`, separated by commas: "+
		"links=10 (configured ten times too fast), speed=2 (engines twice too fast), "+
		"speed=profile (without the hosts' time), "+
		"ids=none (prompts are matched by their text), length=2 (and estimated twice too long), "+
		"index=none (caches are unknown), routers=4 (four routers that do not know of each other), "+
		"routers=4@1s (they share bookings every second)", func(text string) (err error) {
		*misstated, err = cluster.ParseMisstated(text)
		return err
	})
}

// trafficFlags are the flags of the traffic and of each engine.
func trafficFlags(c *cobra.Command, p *replay.Play) {
	fs := c.Flags()
	fs.StringVar(&p.Trace, "trace", conversation(), "`file` of recorded traffic, gzip or not")
	fs.StringVar(&p.Profile, "profile", "70b", "GPU and model, as in tandem sim")
	fs.Float64Var(&p.Cache, "cache", 1, "KV capacity, as a multiple of the GPUs' own")
	fleetFlags(c, &p.Links, &p.Host)
	linkFlag(c, &p.Link)
	fs.Float64Var(&p.Scale, "scale", 1, "multiply the rate of arrivals by this")
	fs.Float64Var(&p.Rate, "rate", 0.05,
		"sessions per second, if the trace has no start times, or with --arrivals")
	fs.StringVar(&p.Arrivals, "arrivals", "",
		"`file` of ServeGen's clients: sessions start as unevenly as these clients, --rate per second in the mean")
	fs.DurationVar(&p.For, "for", 0, "virtual time in which sessions start, 0 for the whole trace")
	fs.IntVar(&p.MaxLen, "max-len", 131072, "leave out sessions whose prompt and answer have more tokens")
	fs.BoolVar(&p.Raw, "raw", false, "keep the 3 s ticks of Mooncake's times")
	fs.Func("stress", "make the traffic hard, by any `of` "+
		"hot (three in ten begin with the same 20,000 tokens), flood (no shared prefixes), "+
		"surge (twice as much for a minute)", func(text string) (err error) {
		p.Stress, err = replay.ParseStress(text)
		return err
	})
	fs.Uint64Var(&p.Seed, "seed", 1, "seed of the random numbers")
	fs.DurationVar(&p.EventLag, "event-lag", 100*time.Millisecond, "delay of KV events")
	fs.DurationVar(&p.Poll, "poll", time.Second, "time between two load reports of an engine")
	fs.DurationVar(&p.SLO.TTFT, "slo-ttft", 5*time.Second, "longest TTFT of a good answer")
	fs.DurationVar(&p.SLO.TPOT, "slo-tpot", 100*time.Millisecond, "longest TPOT of a good answer")
	fs.DurationVar(&p.SLO.Gap, "slo-gap", 0, "longest time between two tokens of a good answer, 0 for any")
	fs.IntVar(&p.Step, "step", 0, "most `tokens` of a decode replica's step, 0 for vLLM's 8,192")
	choices(c, "profile", presetNames()...)
	choices(c, "stress", described("hot", "three in ten begin with the same 20,000 tokens"),
		described("flood", "no two share a prefix"), described("surge", "twice as much for a minute"))
}

// fleetFlags choose models of parts of the fleet. The present values of links and host are the defaults.
func fleetFlags(c *cobra.Command, links, host *string) {
	fs := c.Flags()
	fs.StringVar(host, "host", cmp.Or(*host, "profile"), "`model` of the engines' CPU time: "+
		"profile (0.5 ms per step), measured (1.9 ms per step, 8 ms per leg, 1.5 us per prompt token) "+
		"or posting (measured, and 4 us in "+
		"the decode engine's steps per descriptor of a transfer)")
	fs.StringVar(links, "links", cmp.Or(*links, "queue"), "`model` of simultaneous transfers: "+
		"queue (an engine moves one prompt after the other, and a transfer occupies both ends) "+
		"or shared (all at once, in even shares)")
	choices(c, "host", "profile", "measured", "posting")
	choices(c, "links", "queue", "shared")
}

// linkFlag says how fast engines reach each other.
func linkFlag(c *cobra.Command, link *float64) {
	c.Flags().Float64Var(link, "link", replay.UsualLink, "GB/s between engines")
}

// progress prints what will be played, and every few seconds the progress of the play. It returns nil for
// quiet.
func progress(w io.Writer, p *replay.Play, quiet bool) (func(string, time.Duration), error) {
	if quiet {
		return nil, nil
	}
	span, err := p.Span()
	if err != nil {
		return nil, err
	}
	r := newReporter(w)
	r.say(fmt.Sprintf("playing %s over %s: %v of traffic, with each of %d policies; --help has other choices",
		cmp.Or(p.Kind, p.Trace), p.Cluster, span.Round(time.Second), len(p.Policies)), 0)
	return func(policy string, at time.Duration) {
		done := float64(max(0, slices.Index(p.Policies, policy)))
		share := (done + min(1, at.Seconds()/max(1, span.Seconds()))) / float64(len(p.Policies))
		if p.Tuned { // the number of tries is unknown
			share = 0
		}
		r.at(fmt.Sprintf("%s, %v of %v", policy, at, span.Round(time.Second)), share)
	}, nil
}

func validateCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "validate", Short: "compare the simulated engines with recorded runs of real ones", Args: noArgs,
	}
	fs := c.Flags()
	traces := fs.String("traces", shippedTraces(),
		"`folder` with vllm_ground_truth, which does not ship with Tandem")
	predictions := fs.String("predictions", filepath.Join("build", "predictions.jsonl"),
		"`file` for the predictions of runs without results")
	formula := fs.Bool("formula", false,
		"take step times from the formula that all other plays use, fitted to the kernel tables")
	asJSON := fs.Bool("json", false, "print JSON")
	c.RunE = func(c *cobra.Command, _ []string) error {
		return validate(c, *traces, *predictions, *formula, *asJSON)
	}
	return c
}

func validate(c *cobra.Command, traces, predictions string, formula, asJSON bool) error {
	stdout, stderr := c.OutOrStdout(), c.ErrOrStderr()
	folder := filepath.Join(traces, "vllm_ground_truth")
	if _, err := os.Stat(folder); err != nil {
		return fmt.Errorf("no recorded runs: %w; --traces names the folder that holds vllm_ground_truth "+
			"(source: examples/traces/README.md)", err)
	}
	vs, err := replay.Validate(os.DirFS(folder), formula,
		func(run string) { fmt.Fprintln(stderr, "simulating", run) })
	if err != nil {
		return err
	}
	if asJSON {
		err = json.NewEncoder(stdout).Encode(vs)
	} else {
		err = replay.Print(stdout, vs)
	}
	if !formula {
		err = errors.Join(err, replay.Check(vs))
	}
	return errors.Join(err,
		writeFile(predictions, func(w io.Writer) error { return replay.WritePredictions(w, vs) }))
}

// writeFile makes a file and its folder.
func writeFile(name string, write func(io.Writer) error) (err error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return write(f)
}
