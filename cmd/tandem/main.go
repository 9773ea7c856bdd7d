// Command tandem places each request on a prefill and a decode replica of a vLLM fleet, hands the KV cache
// over and streams the answer.
//
// Every subcommand is a thin file of this folder; what it does lives in the rooms below.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// command is one subcommand. run gets the arguments behind its name and blocks until its work is done or ctx
// ends; it reports usage mistakes as errUsage.
type command struct {
	name, brief string
	run         func(ctx context.Context, args []string, stdout, stderr io.Writer) error
}

func commands() []command {
	return []command{
		{"serve", "route requests over the replicas of a file or of flags", runServe},
		{"demo", "simulated engines, a router and traffic, a line per request", runDemo},
		{"sim", "serve one simulated vLLM engine", runSim},
		{"replay", "play recorded traffic in virtual time; hold the simulated engines to real runs", runReplay},
		{"advise", "say whether recorded traffic is worth splitting, and over which shape of fleet", runAdvise},
		{
			"tune", "search the weights of the decision on recorded traffic; say what they bring and where they lose",
			runTune,
		},
		{"top", "show a running router in the terminal: replicas, pairs, requests", runTop},
		{"why", "show why a request went where it went, and what other weights would have chosen", runWhy},
		{"doctor", "ask live engines whether prefix routing can work; explain what stops it", runDoctor},
		{"check", "validate a configuration file; say what it would change", runCheck},
		{"version", "print the version of this binary", runVersion},
		{"completion", "print a script that lets a shell complete the command line", runCompletion},
	}
}

// errUsage marks a mistake on the command line, which has been explained already.
var errUsage = errors.New("usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run finds the subcommand and returns the exit code: 0 done, 1 failed, 2 wrong use.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		usage(stderr)
		return 2
	}
	help := stderr
	switch args[0] {
	case "help", "-h", "-help", "--help":
		if len(args) == 1 {
			usage(stdout)
			return 0
		}
		args, help = append(args[1:len(args):len(args)], "-h"), stdout // what was asked for is no complaint
	case "-v", "-version", "--version":
		args = []string{"version"}
	}
	for _, c := range commands() {
		if c.name != args[0] {
			continue
		}
		switch err := c.run(ctx, args[1:], stdout, help); {
		case err == nil, errors.Is(err, flag.ErrHelp):
			return 0
		case errors.Is(err, errUsage):
			return 2
		default:
			fmt.Fprintf(stderr, "tandem %s: %v\n", c.name, err)
			return 1
		}
	}
	fmt.Fprintf(stderr, "tandem: there is no command %q\n\n", args[0])
	usage(stderr)
	return 2
}

func usage(w io.Writer) {
	fmt.Fprint(w, "Usage: tandem COMMAND [flags]; tandem help COMMAND explains one.\n\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-10s %s\n", c.name, c.brief)
	}
}

// newFlags makes a flag set that prints its own usage to stderr.
func newFlags(name, args string, stderr io.Writer) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprintf(stderr, "Usage: tandem %s %s\n\n", name, args)
		fs.PrintDefaults()
	}
	return fs
}

// parse reads args and turns a mistake into errUsage, after flag has explained it.
func parse(fs *flag.FlagSet, args []string) error {
	err := fs.Parse(args)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		return errUsage
	}
	return err
}

// parseAlone parses the flags of a command that takes nothing else: a word too many may be a mistyped
// subcommand, and what runs without it may take an hour.
func parseAlone(fs *flag.FlagSet, args []string) error {
	if err := parse(fs, args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		first := ""
		if words := subcommandsOf(fs.Name()); len(words) > 0 {
			first = "; a subcommand stands first, and is one of " + strings.Join(words, ", ")
		}
		fmt.Fprintf(fs.Output(), "tandem %s: unexpected argument %q%s; tandem %s -h tells what there is\n",
			fs.Name(), fs.Arg(0), first, fs.Name())
		return errUsage
	}
	return nil
}

// list is a flag that may be given several times.
type list []string

func (l *list) String() string     { return fmt.Sprint(*l) }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }
