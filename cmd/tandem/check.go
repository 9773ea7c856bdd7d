package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/discovery"
	"github.com/tandem-router/tandem/internal/doctor"
	"github.com/tandem-router/tandem/internal/panics"
	"github.com/tandem-router/tandem/orchestrator"
)

// checkCommand checks a configuration file. It prints the resulting settings and the changes that a reload
// would make.
func checkCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "check {FILE | --config FILE}", Short: "validate a configuration file; say what it would change",
		Args:    between(0, 1, ""),
		Example: "  tandem check tandem.yaml\n  tandem check --config new.yaml --against tandem.yaml",
	}
	var o checkOptions
	file := ""
	c.Flags().StringVar(&file, "config", "", "the configuration `file`; the argument FILE does the same")
	c.Flags().StringVar(&o.against, "against", "",
		"the `file` in force now: show what a reload of FILE would change")
	c.Flags().BoolVar(&o.json, "json", false, "write one JSON object, for programs")
	c.Flags().BoolVar(&o.offline, "offline", false,
		"do not read secrets and certificates, and do not resolve addresses or run discovery: for another machine")
	files(c, "yaml", "yml")
	c.RunE = func(c *cobra.Command, args []string) error {
		file, err := configFile(file, args)
		switch {
		case err != nil:
			return err
		case file == "":
			return wrongUse("name the configuration file")
		}
		return o.run(c.Context(), file, c.OutOrStdout())
	}
	return c
}

// checkOptions is what the flags of check say.
type checkOptions struct {
	against       string
	json, offline bool
	// Finds the addresses of replicas; nil asks the machine's resolver.
	lookUp func(ctx context.Context, network, host string) ([]netip.Addr, error)
}

func (o *checkOptions) run(ctx context.Context, file string, stdout io.Writer) error {
	read := config.Load
	if o.offline {
		read = config.ParseFile
	}
	if o.json {
		return o.writeJSON(ctx, read, file, stdout)
	}
	c, err := readConfig(read, file, stdout)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s: ok\n", file)
	printConfig(stdout, c)
	for _, note := range o.notes(ctx, c) {
		fmt.Fprintf(stdout, "  note  %s\n", note)
	}
	if o.against == "" {
		return nil
	}
	old, err := readConfig(read, o.against, stdout)
	if err != nil {
		return err
	}
	printChanges(stdout, o.against, config.Diff(old, c))
	return nil
}

// notes returns what an operator should know of a good configuration: empty pools, and, unless offline, what
// discovery finds, names with several addresses and missing folders.
func (o *checkOptions) notes(ctx context.Context, c *config.Config) (notes []string) {
	if note := emptyPools(c); note != "" {
		notes = append(notes, note)
	}
	if o.offline {
		return notes
	}
	_, found := discovered(ctx, c)
	notes = append(notes, found...)
	notes = append(notes, doctor.Addresses(ctx, c, o.lookUp)...)
	return append(notes, missingFolders(c)...)
}

// discovered returns c with what its discovery finds from this machine, and a note for each question.
func discovered(ctx context.Context, c *config.Config) (*config.Config, []string) {
	quiet := panics.Guard{Log: slog.New(slog.DiscardHandler)}
	return discovery.Once(ctx, c, orchestrator.Sources(quiet)...)
}

// readConfig prints every problem of file and returns how many there are as the error.
func readConfig(
	read func(string) (*config.Config, error), file string, stdout io.Writer,
) (*config.Config, error) {
	c, err := read(file)
	problems, ok := errors.AsType[config.Problems](err)
	if !ok {
		return c, err
	}
	fmt.Fprintln(stdout, problems)
	return nil, countProblems(file, problems)
}

func countProblems(file string, problems config.Problems) error {
	if len(problems) == 1 {
		return fmt.Errorf("%s has a problem", file)
	}
	return fmt.Errorf("%s has %d problems", file, len(problems))
}

// printConfig prints the effective values for which people ask first.
func printConfig(stdout io.Writer, c *config.Config) {
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	defer w.Flush()
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "  %s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	n := len(c.ClientKeys())
	row("front", "%s%s, %s", c.Listen, ifElse(c.TLS.Enabled(), " with TLS", ""),
		ifElse(n > 0, fmt.Sprintf("%d client keys", n), "open to everybody"))
	row("admin", "%s%s", c.Admin.Listen, ifElse(c.Admin.Token.IsSet(), ", with a token", ""))
	row("prefill", "%s", pool(c.Pools.Prefill, c.Discovery.For(config.PoolPrefill)))
	row("decode", "%s", pool(c.Pools.Decode, c.Discovery.For(config.PoolDecode)))
	row("connector", "%s, lease %v, margin %v", c.Connector.Type, c.Connector.Lease, c.Connector.Margin)
	row("local", "%s", c.Local)
	s := c.Scoring
	row("scoring", "alpha %v, beta %v, gamma %v, decode penalty %v", s.Alpha, s.Beta, s.Gamma, s.DecodePenalty)
	row("links", "host %s/s, rack %s/s, zone %s/s, other %s/s, until learned", sized(s.Links.Host),
		sized(s.Links.Rack), sized(s.Links.Zone), sized(s.Links.Other))
	if r := c.Routers; len(r.Peers) > 0 {
		row("routers", "%s", strings.Join(r.Peers, ", "))
	}
	t := c.Timeouts
	row("timeouts", "queue %v, prefill %v, first token %v, between tokens %v, drain %v",
		t.Queue, t.Prefill, t.DecodeFirst, t.DecodeIdle, t.Drain)
	row("tracing", "%s", ifElse(c.Tracing.Exporter == config.TraceEnv, "as OTEL_* says", c.Tracing.Exporter))
	if c.State.File != "" {
		row("state", "%s, every %v", c.State.File, c.State.Interval)
	}
	if set := experiments(c); len(set) > 0 {
		row("experimental", "%s", strings.Join(set, ", "))
	}
}

// emptyPools says what a router would do without replicas in a pool; "" if both pools have replicas.
func emptyPools(c *config.Config) string {
	prefill := len(c.Pools.Prefill.Replicas) > 0 || c.Discovery.For(config.PoolPrefill)
	decode := len(c.Pools.Decode.Replicas) > 0 || c.Discovery.For(config.PoolDecode)
	switch {
	case !decode && !prefill:
		return "pools.prefill and pools.decode are empty: the router would start, and not be ready"
	case !decode:
		return "pools.decode is empty: the router would start, and not be ready"
	case !prefill && c.Local == config.LocalNever:
		return "pools.prefill is empty and local is never: the router would start, and not be ready"
	case !prefill:
		return "pools.prefill is empty: no request would be split"
	}
	return ""
}

// missingFolders names the files whose folders do not exist on this machine.
func missingFolders(c *config.Config) []string {
	var notes []string
	for _, file := range []struct{ field, name string }{
		{"state.file", c.State.File}, {"decisions.file", c.Decisions.File}, {"tracing.file", c.Tracing.File},
	} {
		if file.name == "" {
			continue
		}
		folder := filepath.Dir(file.name)
		if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
			notes = append(notes, fmt.Sprintf(
				"%s: there is no folder %s on this machine; make it before the router starts", file.field, folder))
		}
	}
	return notes
}

// pool describes a pool. found says that discovery looks for more replicas.
func pool(p config.Pool, found bool) string {
	ids := make([]string, len(p.Replicas))
	for i, r := range p.Replicas {
		ids[i] = r.ID()
	}
	list := ifElse(len(ids) == 0, "none", strings.Join(ids, ", "))
	list += ifElse(found, ", and what discovery finds", "")
	return fmt.Sprintf("%d: %s (index %s, %s)", len(ids), list, p.Index, sized(p.IndexBytes))
}

// sized writes a size with its unit, which a file may leave out.
func sized(b config.Bytes) string {
	text := b.String()
	return text + ifElse(strings.HasSuffix(text, "B"), "", "B")
}

// experiments lists the experimental settings that are not the default, with their values.
func experiments(c *config.Config) (set []string) {
	for _, change := range config.Diff(config.Default(), c) {
		if field, ok := strings.CutPrefix(change.Field, "experimental."); ok {
			set = append(set, field+" "+change.New)
		}
	}
	return set
}

func ifElse(yes bool, then, otherwise string) string {
	if yes {
		return then
	}
	return otherwise
}

// printChanges lists what a reload would change, and says whether a reload is enough.
func printChanges(stdout io.Writer, against string, changes []config.Change) {
	if len(changes) == 0 {
		fmt.Fprintf(stdout, "no change against %s\n", against)
		return
	}
	restart := 0
	fmt.Fprintf(stdout, "changes against %s:\n", against)
	for _, c := range changes {
		fmt.Fprintf(stdout, "  %v\n", c)
		if c.Effect == config.NeedsRestart {
			restart++
		}
	}
	if restart > 0 {
		fmt.Fprintf(stdout, "%d of %d changes need a restart; a reload would apply the others\n",
			restart, len(changes))
	}
}
