// Command tandem places each request on a prefill and a decode replica of a vLLM fleet, hands the KV cache
// over and streams the answer.
//
// Every subcommand is a thin file of this folder; the work is in the packages below.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes, for scripts. A command that fails for another reason than its command line ends with
// exitFailed.
const (
	exitFailed = 1
	exitUsage  = 2
	exitLate   = 3 // the wait was too short; the command may still succeed
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run executes the command line args and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot(stdout, stderr)
	if len(args) > 0 && args[0] == cobra.ShellCompRequestCmd {
		plainUsage(root)
	}
	root.SetArgs(doubleDashes(root, args))
	c, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "%s: %v\n", c.CommandPath(), err)
	wrong, ok := errors.AsType[*usageError](err)
	switch {
	case errors.Is(err, errNotInTime):
		return exitLate
	case !ok:
		return exitFailed
	}
	if wrong.usage {
		fmt.Fprintf(stderr, "Usage: %s\n%s --help explains it.\n", c.UseLine(), c.CommandPath())
	}
	return exitUsage
}

// newRoot makes the command tandem with all its subcommands, which write to stdout and stderr.
//
// Long: a row for each property and each group of commands.
func newRoot(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "tandem",
		Short: "route requests over the prefill and decode replicas of a vLLM fleet",
		Long: "Tandem routes requests over vLLM engines in two pools: it picks a prefill and a decode replica " +
			"for each request,\nhands the KV cache over and streams the answer.\n\n" +
			"Exit codes: 0 the command did its work, 1 it failed, 2 the command line is wrong.",
		Version:               version,
		Args:                  cobra.ArbitraryArgs,
		SilenceErrors:         true,
		SilenceUsage:          true,
		DisableAutoGenTag:     true,
		DisableFlagsInUseLine: true,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(c, args[0])
			}
			c.SetOut(c.ErrOrStderr())
			return errors.Join(c.Help(), wrongUse("name a command, as in: tandem serve"))
		},
	}
	root.SetOut(stdout) // completion keeps the writer that it finds when it is made
	root.SetErr(stderr)
	root.SetVersionTemplate(versionLine())
	root.SetFlagErrorFunc(explainFlag)
	root.AddGroup(
		&cobra.Group{ID: groupServe, Title: "Serve requests:"},
		&cobra.Group{ID: groupLook, Title: "Look after a fleet:"},
		&cobra.Group{ID: groupPlay, Title: "Try without engines:"},
	)
	add := func(group string, all ...*cobra.Command) {
		for _, c := range all {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add(groupServe, serveCommand(), eppCommand(), checkCommand(), doctorCommand())
	add(groupLook, topCommand(), whyCommand(), drainCommand(), undrainCommand(), keyCommand(), usedCommand())
	add(groupPlay, demoCommand(), simCommand(), replayCommand(), adviseCommand(), tuneCommand())
	root.AddCommand(versionCommand())
	root.AddCommand(extraCommands()...)
	root.SetHelpCommand(helpCommand())
	root.InitDefaultHelpCmd()
	addCompletion(root)
	return root
}

const (
	groupServe = "serve"
	groupLook  = "look"
	groupPlay  = "play"
)

// helpCommand explains a command. Unlike cobra's own, it fails for an unknown command.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND...]",
		Short: "explain a command",
		RunE: func(c *cobra.Command, args []string) error {
			about, rest, err := c.Root().Find(args)
			switch {
			case err != nil:
				return wrongUse("%s", err)
			case len(rest) > 0:
				return unknownCommand(about, rest[0])
			}
			about.InitDefaultHelpFlag()
			about.InitDefaultVersionFlag()
			return about.Help()
		},
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			if about, rest, err := c.Root().Find(args); err == nil && len(rest) == 0 {
				for _, sub := range about.Commands() {
					names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}
