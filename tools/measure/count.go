package main

import (
	"bytes"
	"cmp"
	"go/ast"
	"go/doc"
	"go/scanner"
	"go/token"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// named is a count of something with a name and a place.
type named struct {
	name   string
	n      int
	reason string // the written reason for its length, if any: see reasonIn
}

// counts are the figures of one room. All but examples and testLines leave out tests.
type counts struct {
	files     []named // lines each
	lines     int     // lines that are not blank
	codeLines int     // with a token on them
	testLines int     // code lines of tests
	tokens    int     // without comments and automatic semicolons

	functions []named // lines of each, from func to the last brace, with inner function literals
	weights   []int   // tokens of each function

	width   widths
	comment commentSums

	states stateCounts
	rings  []ring // one for each folder of the room
	api    apiCounts
}

// stateCounts has figures of the structs with an unexported field.
type stateCounts struct {
	fields []named // fields of each
	values []named // the same, with nested structs of the package: see values
}

// widths counts code that is too wide for quick reading.
type widths struct {
	over100, over110 int // lines with more columns; a tab counts as one
	manyTargets      int // assignments to three or more variables
}

// commentSums counts comments.
type commentSums struct {
	bytes, commentBytes int
	commentLines        int // lines with a comment, also behind code
	prose               prose
}

// apiCounts describes the documentation of the package's API.
type apiCounts struct {
	exported     int // types, functions, methods of exported types, constants and variables
	undocumented int // those without a comment of their own or of their group
	examples     int // runnable ones: with an output to compare
	constants    int // named numbers, exported or not, see constants
}

// file adds one file.
func (c *counts) file(f *source) {
	code, tokens := codeOf(f)
	if f.test() {
		c.testLines += len(code)
		c.api.countExamples(f)
		return
	}
	lines := bytes.Split(bytes.TrimSuffix(f.text, []byte("\n")), []byte("\n"))
	c.files = append(c.files, named{f.name, len(lines), f.reason()})
	c.lines += len(code)
	c.codeLines += len(code)
	c.tokens += len(tokens)
	c.api.constants += constants(f)
	c.width.widths(lines)
	c.comments(f, code)
	for _, d := range f.syntax.Decls {
		c.declaration(f, d, tokens)
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok && len(a.Lhs) >= 3 {
			c.width.manyTargets++
		}
		return true
	})
}

// codeOf finds the lines that have a token, and where each token begins.
func codeOf(f *source) (lines map[int]bool, at []int) {
	lines = make(map[int]bool)
	set := token.NewFileSet()
	file := set.AddFile("", -1, len(f.text))
	var s scanner.Scanner
	s.Init(file, f.text, nil, 0)
	for {
		pos, tok, text := s.Scan()
		switch {
		case tok == token.EOF:
			return lines, at
		case tok == token.SEMICOLON && text == "\n":
			continue
		}
		at = append(at, file.Offset(pos))
		first := file.Line(pos)
		for i := range strings.Count(text, "\n") + 1 { // a raw string may have several lines
			lines[first+i] = true
		}
	}
}

func (c *widths) widths(lines [][]byte) {
	for _, line := range lines {
		n := utf8.RuneCount(line)
		for limit, over := range map[int]*int{100: &c.over100, 110: &c.over110} {
			if n > limit {
				*over++
			}
		}
	}
}

func (c *counts) comments(f *source, code map[int]bool) {
	c.comment.bytes += len(f.text)
	for _, g := range f.syntax.Comments {
		c.comment.prose.comment(g.Text())
		for _, one := range g.List {
			c.comment.commentBytes += f.offset(one.End()) - f.offset(one.Pos())
			first, last := f.line(one.Pos()), f.line(one.End())
			c.comment.commentLines += last - first + 1
			for line := first; line <= last; line++ {
				c.lines += btoi(!code[line])
			}
		}
	}
}

func (c *counts) declaration(f *source, d ast.Decl, tokens []int) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		name := nameOf(d)
		c.functions = append(c.functions, named{
			f.name + " " + name, f.line(d.End()) - f.line(d.Pos()) + 1, reasonIn(d.Doc),
		})
		c.weights = append(c.weights, len(between(tokens, f.offset(d.Pos()), f.offset(d.End()))))
		if ast.IsExported(d.Name.Name) && (d.Recv == nil || ast.IsExported(receiver(d))) {
			c.api.export(d.Doc != nil)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			c.spec(f, d, s)
		}
	}
}

func (c *counts) spec(f *source, d *ast.GenDecl, s ast.Spec) {
	switch s := s.(type) {
	case *ast.TypeSpec:
		if s.Name.IsExported() {
			c.api.export(d.Doc != nil || s.Doc != nil || s.Comment != nil)
		}
		if t, ok := s.Type.(*ast.StructType); ok {
			c.state(f.name+" "+s.Name.Name, t, cmp.Or(reasonIn(s.Doc), reasonIn(d.Doc)))
		}
	case *ast.ValueSpec:
		for _, n := range s.Names {
			if n.IsExported() {
				c.api.export(d.Doc != nil || s.Doc != nil || s.Comment != nil)
			}
		}
	}
}

func (c *apiCounts) export(documented bool) {
	c.exported++
	if !documented {
		c.undocumented++
	}
}

// state counts the fields of a struct with an unexported field. An embedded field counts as one.
func (c *counts) state(name string, t *ast.StructType, reason string) {
	if !keepsSomething(t) {
		return
	}
	n := 0
	for _, f := range t.Fields.List {
		n += max(1, len(f.Names))
	}
	c.states.fields = append(c.states.fields, named{name, n, reason})
}

// nested counts the values of each struct with an unexported field.
func (c *counts) nested(files []*source, v *values) {
	for _, f := range files {
		if f.test() {
			continue
		}
		for _, d := range f.syntax.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, s := range g.Specs {
				if t, ok := s.(*ast.TypeSpec); ok && keepsSomething(t.Type) {
					n := v.of(path.Dir(f.name), t.Type)
					c.states.values = append(c.states.values, named{name: f.name + " " + t.Name.Name, n: n})
				}
			}
		}
	}
}

// keepsSomething reports whether a type is a struct with an unexported field.
func keepsSomething(t ast.Expr) bool {
	s, ok := t.(*ast.StructType)
	return ok && slices.ContainsFunc(s.Fields.List, func(f *ast.Field) bool {
		return slices.ContainsFunc(f.Names, func(id *ast.Ident) bool { return !id.IsExported() })
	})
}

func (c *apiCounts) countExamples(f *source) {
	for _, e := range doc.Examples(f.syntax) {
		if e.Output != "" || e.EmptyOutput {
			c.examples++
		}
	}
}

func nameOf(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	return receiver(d) + "." + d.Name.Name
}

// receiver is the type's name, without the star and type parameters.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	for t := d.Recv.List[0].Type; ; {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

// between returns the sorted offsets from start up to end.
func between(offsets []int, start, end int) []int {
	from, _ := slices.BinarySearch(offsets, start)
	to, _ := slices.BinarySearch(offsets, end)
	return offsets[from:to]
}
