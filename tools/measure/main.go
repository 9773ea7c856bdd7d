// Command measure counts what a reader meets in a tree of Go: the length and density of functions, files and
// lines, comments, tests, and what the API documents.
//
// It prints tables by room of ARCHITECTURE.md, and lists of what is largest; with -against another checkout,
// what has changed stands as "before → after". What each count means is said in count.go. Generated files,
// testdata and build are left out.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	against := flag.String("against", "",
		"folder of a checkout to compare with: its figures stand before the arrow")
	flag.Parse()
	if err := run(*against, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}

func run(against string, args []string) error {
	dir := "."
	switch len(args) {
	case 0:
	case 1:
		dir = args[0]
	default:
		return fmt.Errorf("want at most one folder, got %d", len(args))
	}
	after, err := measure(dir)
	if err != nil {
		return err
	}
	before := after
	if against != "" {
		if before, err = measure(against); err != nil {
			return err
		}
	}
	return report(os.Stdout, before, after)
}
