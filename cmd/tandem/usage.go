package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tandem-router/tandem/internal/config"
)

// usageError is a mistake on the command line. Its exit code is 2.
type usageError struct {
	text  string
	usage bool // print the usage line after it; a wrong value does not need one
}

func (e *usageError) Error() string { return e.text }

// wrongUse is an error in the command line: something is missing, unknown or too much.
func wrongUse(format string, args ...any) error {
	return &usageError{text: fmt.Sprintf(format, args...), usage: true}
}

// wrongValue is an error in the value of a flag or argument. It is printed in one line.
func wrongValue(format string, args ...any) error {
	return &usageError{text: fmt.Sprintf(format, args...)}
}

// explainFlag turns a mistake of pflag's into one that names the flag and the fix.
func explainFlag(c *cobra.Command, err error) error {
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok {
		name := e.GetSpecifiedName()
		if group := e.GetSpecifiedShortnames(); len(group) > 1 { // -lsten is --lsten, not five flags of one letter
			name, _, _ = strings.Cut(group, "=")
		}
		var known []string
		c.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
		dashes := strings.Repeat("-", min(2, len(name)))
		if best := config.Nearest(name, known); best != "" {
			return wrongUse("there is no flag %s%s; did you mean --%s?", dashes, name, best)
		}
		return wrongUse("there is no flag %s%s", dashes, name)
	}
	if e, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return wrongUse("--%s needs a value", e.GetFlag().Name)
	}
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		f := e.GetFlag()
		want, ok := wanted[f.Value.Type()]
		if !ok {
			want = e.Unwrap().Error()
		}
		return wrongValue("--%s %q: %s", f.Name, e.GetValue(), want)
	}
	return wrongUse("%s", err)
}

// wanted says for each type of flag what a value looks like.
var wanted = map[string]string{
	"bool":     "want true or false",
	"duration": "want a duration, as 30s or 5m",
	"float64":  "want a number",
	"int":      "want a whole number",
	"uint64":   "want a whole number from 0 up",
}

// unknownCommand says that c has no subcommand with this name.
func unknownCommand(c *cobra.Command, name string) error {
	c.SuggestionsMinimumDistance = 2
	if near := c.SuggestionsFor(name); len(near) > 0 {
		return wrongUse("there is no command %q; did you mean %s?", name, strings.Join(near, " or "))
	}
	var names []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return wrongUse("there is no command %q; there are %s", name, strings.Join(names, ", "))
}

// needSubcommand is the action of a command that only has subcommands.
func needSubcommand(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return unknownCommand(c, args[0])
	}
	var names []string
	for _, sub := range c.Commands() {
		names = append(names, sub.Name())
	}
	return wrongUse("name one of %s", strings.Join(names, ", "))
}

// noArgs refuses every argument. An additional argument may be a mistyped subcommand, and the command without
// it may run for an hour.
func noArgs(c *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case c.HasSubCommands():
		return unknownCommand(c, args[0])
	}
	return wrongUse("unexpected argument %q", args[0])
}

// between refuses fewer than least arguments, and more than most. what names one argument.
func between(least, most int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return wrongUse("name %s", what)
		case len(args) > most:
			return wrongUse("unexpected argument %q", args[most])
		}
		return nil
	}
}

// configFile is the file that --config or the argument names, "" if none does.
func configFile(flag string, args []string) (string, error) {
	switch {
	case len(args) == 0:
		return flag, nil
	case flag != "":
		return "", wrongUse("unexpected argument %q: --config names the file already", args[0])
	}
	return args[0], nil
}

// doubleDashes accepts -listen for --listen, as before version 0.1. It changes only names of existing flags,
// and nothing after "--".
func doubleDashes(root *cobra.Command, args []string) []string {
	known := map[string]bool{"help": true, "version": true}
	visit(root, func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) { known[f.Name] = true })
	})
	out := make([]string, len(args))
	for i, arg := range args {
		if arg == "--" {
			copy(out[i:], args[i:])
			break
		}
		name, _, _ := strings.Cut(arg, "=")
		if name, single := strings.CutPrefix(name, "-"); single && len(name) > 1 && known[name] {
			arg = "-" + arg
		}
		out[i] = arg
	}
	return out
}

// visit calls do for c and for each command below it.
func visit(c *cobra.Command, do func(*cobra.Command)) {
	do(c)
	for _, sub := range c.Commands() {
		visit(sub, do)
	}
}
