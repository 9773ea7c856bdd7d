package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// addCompletion adds cobra's command that prints the scripts of shells. Without the name of a shell it fails.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd("completion")
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Short = "print a script that lets a shell complete the command line"
			c.Args = cobra.ArbitraryArgs
			c.RunE = needSubcommand
		}
	}
}

// plainUsage removes the quotes from the texts of all flags. In help they mark the name of the value.
func plainUsage(root *cobra.Command) {
	visit(root, func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, "`", "") })
	})
}

// choices lets shells complete the value of a flag. Each of all is a value, or a value and its description as
// [cobra.CompletionWithDesc] makes it.
func choices(c *cobra.Command, flag string, all ...string) {
	err := c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(all, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // the flag does not exist: an error in this program
	}
}

// lists is choices for a flag that accepts several values, separated by commas.
func lists(c *cobra.Command, flag string, all ...string) {
	complete := func(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		before := word[:strings.LastIndexByte(word, ',')+1]
		var next []string
		for _, choice := range all {
			value, _, _ := strings.Cut(choice, "\t")
			if !slices.Contains(strings.Split(before, ","), value) {
				next = append(next, before+choice)
			}
		}
		return next, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	if err := c.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err) // the flag does not exist: an error in this program
	}
}

// described is a value and its meaning, for choices.
func described(value, means string) string { return cobra.CompletionWithDesc(value, means) }

// files lets shells complete the arguments of c with files that have these endings.
func files(c *cobra.Command, endings ...string) {
	c.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return endings, cobra.ShellCompDirectiveFilterFileExt
	}
}
