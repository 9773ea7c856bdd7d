package main

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// document is a page of Markdown.
type document struct {
	name string // from the root of the checkout
	prose
}

// documents counts the pages below dir, the longest first. The last entry, named whole, is the sum.
func documents(dir string) ([]document, error) {
	var all []document
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && path != dir && skipped(e.Name()):
			return filepath.SkipDir
		case e.IsDir() || !strings.HasSuffix(path, ".md"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		d := document{name: filepath.ToSlash(name)}
		d.document(string(text))
		all = append(all, d)
		return err
	})
	slices.SortFunc(all, func(a, b document) int {
		return cmp.Or(b.words-a.words, strings.Compare(a.name, b.name))
	})
	sum := document{name: whole}
	for _, d := range all {
		sum.words += d.words
		sum.long += d.long
		sum.vague += d.vague
		sum.who += d.who
	}
	return append(all, sum), err
}

// compareDocuments prints the pages of a checkout, and the changes since the checkout against.
func compareDocuments(w io.Writer, dir, against string) error {
	after, err := documents(dir)
	if err != nil {
		return err
	}
	before, err := documents(against)
	if err != nil {
		return err
	}
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	listDocuments(tw, before, after)
	return tw.Flush()
}

// listDocuments prints the pages of two checkouts. Differing figures appear as "before → after".
func listDocuments(w io.Writer, before, after []document) {
	was := map[string]prose{}
	for _, d := range before {
		was[d.name] = d.prose
	}
	fmt.Fprintln(w, "document\twords\tsentences over 40 words\tof these/those/it/them/that\twho")
	for _, d := range after {
		b := was[d.name]
		delete(was, d.name)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", d.name, change(b.words, d.words), change(b.long, d.long),
			change(b.vague, d.vague), change(b.who, d.who))
	}
	for _, d := range before {
		if b, gone := was[d.name]; gone {
			fmt.Fprintf(w, "%s\t%d → -\t%d → -\t%d → -\t%d → -\n",
				d.name, b.words, b.long, b.vague, b.who)
		}
	}
	fmt.Fprintln(w)
}

func change(before, after int) string { return arrow(fmt.Sprint(before), fmt.Sprint(after)) }
