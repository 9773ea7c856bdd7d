package main

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/tandem-router/tandem/internal/lab/replay/classes"
)

// classesCommand plays two classes of requests, and says how much load a fleet can serve within their goals.
func classesCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "classes", Args: noArgs,
		Short: "how much more load a fleet holds if it knows the goals of its requests",
		Long: "Plays two classes of requests, half and half: 0.5 s to the first token and 20 ms a token, and\n" +
			"10 s and 200 ms. It searches the load at which 90 % of the answers keep the goals of their class,\n" +
			"with Tandem's decision, with the same decision without the goals, and with rules of the field.",
		Example: "  tandem replay classes --kinds answers300-short-most-bursts --rivals=false",
	}
	o := classes.Options{}
	fs := c.Flags()
	tracesFlag(fs, &o.Traces)
	kinds := fs.String("kinds", "", "`names` of kinds of traffic; if empty, eight open and eight blind ones")
	fs.StringVar(&o.Cluster, "cluster", "2P4D", "prefill and decode `replicas`")
	fs.StringVar(&o.Profile, "profile", "70b", "GPU and model, as in tandem sim")
	fs.IntVar(&o.Seeds, "seeds", 1, "with which each kind is played")
	fs.BoolVar(&o.Rivals, "rivals", true, "play llm-d's and Dynamo's rules, too")
	asJSON := fs.Bool("json", false, "print JSON")
	quiet := fs.Bool("quiet", false, "no progress")
	lists(c, "kinds", kindNames()...)
	choices(c, "profile", presetNames()...)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if o.Kinds = named(*kinds); len(o.Kinds) == 0 {
			o.Kinds = classes.Kinds()
		}
		if !*quiet {
			o.Progress = newReporter(c.ErrOrStderr()).say
		}
		return runClasses(c, &o, *asJSON)
	}
	return c
}

func runClasses(c *cobra.Command, o *classes.Options, asJSON bool) error {
	if err := aboveZero("seeds", float64(o.Seeds)); err != nil {
		return err
	}
	x, err := classes.Run(c.Context(), *o)
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(c.OutOrStdout()).Encode(x)
	}
	return x.Print(c.OutOrStdout())
}
