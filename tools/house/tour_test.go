package house_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

var (
	// fileAndNames is a file followed by names: `a/b.go` (`Type.Method`), or (`a/b.go`, `Type.Method`).
	fileAndNames = regexp.MustCompile("`([a-z0-9/_]+\\.go)`(?:\\s*\\(|,\\s)((?:`[A-Za-z.]+`(?:,\\s)?)+)\\)")
	quotedName   = regexp.MustCompile("`([A-Za-z.]+)`")
)

// The names that the tour gives after a file are declared in this file.
func TestTheTourNamesWhatFilesHave(t *testing.T) {
	atRoot(t)
	names := 0
	for _, m := range fileAndNames.FindAllStringSubmatch(document(t, "docs/tour.md"), -1) {
		declared := declaredIn(t, m[1])
		for _, name := range quotedName.FindAllStringSubmatch(m[2], -1) {
			if names++; !declared[name[1]] {
				t.Errorf("docs/tour.md: %s has no %s", m[1], name[1])
			}
		}
	}
	if names < 30 {
		t.Errorf("docs/tour.md has %d names behind files", names)
	}
}

// declaredIn returns the functions, methods and types of a file: Parse, Index.Match, Record.
func declaredIn(t *testing.T, file string) map[string]bool {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				name = receiver(d.Recv.List[0].Type) + "." + name
			}
			names[name] = true
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if s, ok := s.(*ast.TypeSpec); ok {
					names[s.Name.Name] = true
				}
			}
		}
	}
	return names
}

// receiver is the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr: // a type with a type parameter
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

func document(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The picture has every room of the table.
func TestThePictureHasEveryRoom(t *testing.T) {
	atRoot(t)
	picture := document(t, "docs/img/rooms.svg")
	for _, r := range rooms(t) {
		if !strings.Contains(picture, path.Base(r.name)) {
			t.Errorf("docs/img/rooms.svg has no room %s", r.name)
		}
	}
}
