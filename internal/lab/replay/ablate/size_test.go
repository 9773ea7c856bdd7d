package ablate

import (
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The sizes of the mechanisms are those of the sources, within an eighth.
func TestSizesOfMechanisms(t *testing.T) {
	for _, m := range Mechanisms() {
		var is Size
		for _, code := range m.Code {
			size := sizeOf(t, filepath.Join("../../../..", code))
			is.Lines += size.Lines
			is.Constants += size.Constants
		}
		if far(m.Lines, is.Lines) || far(m.Constants, is.Constants) {
			t.Errorf("%s has %+v, and the table says %+v", m.Name, is, m.Size)
		}
	}
}

func far(said, is int) bool { return 8*max(said-is, is-said) > is }

// sizeOf counts a file, a folder, or a declaration of a file.
func sizeOf(t *testing.T, code string) (s Size) {
	t.Helper()
	path, name, _ := strings.Cut(code, " ")
	files := []string{path}
	if !strings.HasSuffix(path, ".go") {
		files, _ = filepath.Glob(path + "/*.go")
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		one := sizeIn(t, file, name)
		s.Lines += one.Lines
		s.Constants += one.Constants
	}
	if s.Lines == 0 {
		t.Fatalf("%s: no code", code)
	}
	return s
}

// sizeIn counts the declarations of a file with a name, and all if name is "".
func sizeIn(t *testing.T, file, name string) (s Size) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	syntax, err := parser.ParseFile(set, file, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	wanted := map[int]bool{} // lines
	for _, d := range syntax.Decls {
		for _, node := range named(d, name) {
			for l := set.Position(node.Pos()).Line; l <= set.Position(node.End()).Line; l++ {
				wanted[l] = true
			}
			s.Constants += numbers(d, node)
		}
	}
	s.Lines = len(withTokens(text, wanted))
	return s
}

// named returns the parts of a declaration that have the name, and the whole for "".
func named(d ast.Decl, name string) (parts []ast.Node) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if name == "" || d.Name.Name == name {
			parts = append(parts, d)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			values, _ := spec.(*ast.ValueSpec)
			if name == "" || values != nil && values.Names[0].Name == name {
				parts = append(parts, spec)
			}
		}
	}
	return parts
}

// numbers counts the constants of a declaration's part that are numbers.
func numbers(d ast.Decl, part ast.Node) (n int) {
	of, _ := d.(*ast.GenDecl)
	values, _ := part.(*ast.ValueSpec)
	if of == nil || values == nil || of.Tok != token.CONST {
		return 0
	}
	for _, value := range values.Values {
		number := false
		ast.Inspect(value, func(x ast.Node) bool {
			lit, is := x.(*ast.BasicLit)
			number = number || is && (lit.Kind == token.INT || lit.Kind == token.FLOAT)
			return true
		})
		if number {
			n++
		}
	}
	return n
}

// withTokens returns the wanted lines of text that have code.
func withTokens(text []byte, wanted map[int]bool) map[int]bool {
	set, lines := token.NewFileSet(), map[int]bool{}
	file := set.AddFile("", set.Base(), len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return lines
		}
		if l := file.Line(pos); wanted[l] && (tok != token.SEMICOLON || lit == ";") {
			lines[l] = true
		}
	}
}
