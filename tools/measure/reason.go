package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"io"
	"slices"
	"strings"
)

// reasonMark begins the line with the reason for the length of a function, a struct or a file.
const reasonMark = "Long: "

// reasonIn finds the reason in a comment: from its mark to the end of the paragraph, as one line. It returns
// "" if there is none.
func reasonIn(g *ast.CommentGroup) string {
	text := "\n" + g.Text()
	_, reason, found := strings.Cut(text, "\n"+reasonMark)
	if !found {
		return ""
	}
	reason, _, _ = strings.Cut(reason, "\n\n")
	return strings.Join(strings.Fields(reason), " ")
}

// reason is the file's reason: in a comment above its first declaration or import that does not belong to
// that declaration.
func (f *source) reason() string {
	for _, g := range f.syntax.Comments {
		if len(f.syntax.Decls) > 0 && g.End() >= docBegins(f.syntax.Decls[0]) {
			break
		}
		if r := reasonIn(g); r != "" {
			return r
		}
	}
	return ""
}

// docBegins is the beginning of a declaration, its comment included.
func docBegins(d ast.Decl) token.Pos {
	doc := (*ast.CommentGroup)(nil)
	switch d := d.(type) {
	case *ast.FuncDecl:
		doc = d.Doc
	case *ast.GenDecl:
		doc = d.Doc
	}
	if doc != nil {
		return doc.Pos()
	}
	return d.Pos()
}

// check prints items of dir that are too long without a reason, and counts over the checkout's limits. It
// fails if there are any.
func check(w io.Writer, dir string, except []string) error {
	t, err := measure(dir)
	if err != nil {
		return err
	}
	pages, err := documents(dir)
	if err != nil {
		return err
	}
	l, err := readLimits(dir)
	if err != nil {
		return err
	}
	var lines []string
	if l != nil {
		lines = l.against(t, pages)
	}
	lines = append(lines, t[whole].tooLong(except)...)
	for _, line := range lines {
		fmt.Fprintln(w, line)
	}
	if n := len(lines); n > 0 {
		return fmt.Errorf("%d are beyond their limits: make them smaller. "+
			"For a long function, file or struct that must be long, write %q and the reason above it",
			n, reasonMark)
	}
	return nil
}

// tooLong names items that are too long without a reason, without the folders and files in except.
func (c *counts) tooLong(except []string) []string {
	var out []string
	for _, of := range []struct {
		what, unit string
		all        []named
		limit      int
	}{
		{"file", "lines", c.files, longFile},
		{"function", "lines", c.functions, longFunction},
		{"state struct", "fields", c.states.fields, manyFields},
	} {
		for _, x := range unexplained(of.all, of.limit) {
			if slices.ContainsFunc(except, x.isIn) {
				continue
			}
			out = append(out, fmt.Sprintf("%s: %s of %d %s, over %d without a reason",
				x.name, of.what, x.n, of.unit, of.limit))
		}
	}
	return out
}

// isIn says whether x is in a folder or a file.
func (x named) isIn(place string) bool {
	return x.name == place || strings.HasPrefix(x.name, place+"/") || strings.HasPrefix(x.name, place+" ")
}

// unexplained returns the items over the limit without a reason.
func unexplained(all []named, limit int) []named {
	return slices.DeleteFunc(slices.Clone(all), func(x named) bool { return x.n <= limit || x.reason != "" })
}
