package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// runCompletion prints what a shell needs to complete the command line of this binary.
func runCompletion(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs := newFlags("completion", "bash|zsh|fish\n\n"+
		"Prints a script that lets the shell complete commands, flags and files:\n"+
		"  bash  source <(tandem completion bash)\n"+
		"  zsh   source <(tandem completion zsh)\n"+
		"  fish  tandem completion fish | source", stderr)
	if err := parse(fs, args); err != nil {
		return err
	}
	write, ok := map[string]func([]completed) string{"bash": forBash, "zsh": forZsh, "fish": forFish}[fs.Arg(0)]
	if !ok || fs.NArg() != 1 {
		fs.Usage()
		return errUsage
	}
	_, err := io.WriteString(stdout, write(everyCommand(ctx)))
	return err
}

// completed is what can follow a command, or a command and its subcommand.
type completed struct {
	path        []string // of the command, as [replay suite]
	brief       string
	subcommands []string
	flags       []string // without dashes
}

// everyCommand asks every command for its flags, in the words of its own help.
func everyCommand(ctx context.Context) (all []completed) {
	for _, c := range commands() {
		words := subcommandsOf(c.name)
		all = append(all, completed{[]string{c.name}, c.brief, words, flagsOf(ctx, c)})
		for _, sub := range words {
			all = append(all, completed{[]string{c.name, sub}, "", nil, flagsOf(ctx, c, sub)})
		}
	}
	return all
}

// subcommandsOf are the words that may stand behind a command in the place of flags.
func subcommandsOf(name string) (words []string) {
	switch name {
	case "replay":
		for _, c := range replayCommands() {
			words = append(words, c.name)
		}
	case "completion":
		words = []string{"bash", "zsh", "fish"}
	}
	return words
}

// helpFlag finds the flags in what flag.PrintDefaults writes.
var helpFlag = regexp.MustCompile(`(?m)^  -([a-z0-9-]+)`)

func flagsOf(ctx context.Context, c command, args ...string) (names []string) {
	var help bytes.Buffer
	_ = c.run(ctx, append(args, "-h"), &help, &help) // flag.ErrHelp
	for _, m := range helpFlag.FindAllStringSubmatch(help.String(), -1) {
		names = append(names, m[1])
	}
	return names
}

func (c completed) words() string {
	words := append([]string(nil), c.subcommands...)
	for _, f := range c.flags {
		words = append(words, "--"+f)
	}
	return strings.Join(words, " ")
}

func names(all []completed) string {
	var words []string
	for _, c := range all {
		if len(c.path) == 1 {
			words = append(words, c.path[0])
		}
	}
	return strings.Join(words, " ")
}

// forBash completes files wherever no word fits, so that no flag needs to say whether it takes one.
func forBash(all []completed) string {
	var b strings.Builder
	b.WriteString(
		"_tandem() {\n\tlocal cur=${COMP_WORDS[COMP_CWORD]} words\n\tif [ \"$COMP_CWORD\" = 1 ]; then\n",
	)
	fmt.Fprintf(&b,
		"\t\twords='%s --help --version'\n\telse\n\t\tcase \"${COMP_WORDS[1]} ${COMP_WORDS[2]}\" in\n", names(all))
	for _, c := range deepestFirst(all) {
		fmt.Fprintf(&b, "\t\t%s) words='%s' ;;\n", c.pattern(), c.words())
	}
	b.WriteString("\t\tesac\n\tfi\n\tmapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n}\n")
	b.WriteString("complete -o bashdefault -o default -F _tandem tandem\n")
	return b.String()
}

// pattern is what a case of bash and of zsh has for the words in front: whatever comes behind a command, or a
// command with its own.
func (c completed) pattern() string {
	if len(c.path) == 1 {
		return "'" + c.path[0] + " '*"
	}
	return "'" + strings.Join(c.path, " ") + "'"
}

// forZsh completes files beside the words, as forBash does.
func forZsh(all []completed) string {
	var b strings.Builder
	b.WriteString("#compdef tandem\n_tandem() {\n\tlocal -a words_ commands_\n\tif (( CURRENT == 2 )); then\n" +
		"\t\tcommands_=(\n")
	for _, c := range all {
		if len(c.path) == 1 {
			fmt.Fprintf(&b, "\t\t\t'%s:%s'\n", c.path[0], strings.ReplaceAll(c.brief, "'", ""))
		}
	}
	b.WriteString(
		"\t\t)\n\t\t_describe command commands_\n\t\treturn\n\tfi\n\tcase \"$words[2] $words[3]\" in\n",
	)
	for _, c := range deepestFirst(all) {
		fmt.Fprintf(&b, "\t%s) words_=(%s) ;;\n", c.pattern(), c.words())
	}
	b.WriteString("\tesac\n\tcompadd -a words_\n\t_files\n}\n")
	b.WriteString("if [ \"$funcstack[1]\" = _tandem ]; then _tandem \"$@\"; else compdef _tandem tandem; fi\n")
	return b.String()
}

// forFish says for every word where it may stand; fish completes files by itself.
func forFish(all []completed) string {
	var b strings.Builder
	for _, c := range all {
		seen := "__fish_seen_subcommand_from " + strings.Join(c.path, "; and __fish_seen_subcommand_from ")
		if len(c.path) == 1 {
			fmt.Fprintf(&b, "complete -c tandem -f -n __fish_use_subcommand -a %s -d '%s'\n",
				c.path[0], strings.ReplaceAll(c.brief, "'", ""))
		}
		if len(c.subcommands) > 0 {
			fmt.Fprintf(&b, "complete -c tandem -n '%s' -a '%s'\n", seen, strings.Join(c.subcommands, " "))
		}
		for _, f := range c.flags {
			fmt.Fprintf(&b, "complete -c tandem -n '%s' -l %s\n", seen, f)
		}
	}
	b.WriteString(
		"complete -c tandem -n __fish_use_subcommand -l version -d 'print the version of this binary'\n",
	)
	return b.String()
}

// deepestFirst puts subcommands before the commands that they belong to.
func deepestFirst(all []completed) (sorted []completed) {
	for depth := 2; depth > 0; depth-- {
		for _, c := range all {
			if len(c.path) == depth {
				sorted = append(sorted, c)
			}
		}
	}
	return sorted
}
