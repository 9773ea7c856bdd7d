package house_test

import (
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"
	"testing"
)

// ownNumbers are the functions and values outside of the configuration that stand in for what nobody has
// said, each with the reason why no file says it.
var ownNumbers = map[string]string{
	"internal/doctor defaultTimeout": "of the doctor's own questions, a flag",
	"internal/engine setDefaults":    "how connections are kept, which follows from vLLM's server",
	"internal/kvevents withDefaults": "times of the event protocol, which tests shorten",
	"orchestrator/policy Default":    "it is config.Default, in the planner's terms",
	"internal/estimate DefaultSpeed": "the profile of an engine from which learning begins",
}

// laboratory are the rooms whose numbers describe experiments.
var laboratory = []string{"internal/lab", "tools", "examples"}

// What a file may set has its default in internal/config alone. A room below says what a setting means and
// never what it is by default: where a zero stood for another number, and a negative one for zero, two homes
// differed.
func TestDefaultsHaveOneHome(t *testing.T) {
	atRoot(t)
	found := map[string]string{}
	for _, s := range sources(t) {
		in := func(room string) bool { return s.folder == room || strings.HasPrefix(s.folder, room+"/") }
		if s.generated() || in("internal/config") || slices.ContainsFunc(laboratory, in) {
			continue
		}
		for _, d := range s.file.Decls {
			for _, name := range standIns(d) {
				found[s.folder+" "+name] = s.at(d)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if _, ok := ownNumbers[name]; !ok {
			t.Errorf("%s: %s has a number for what nobody said; its home is config.Default", found[name], name)
		}
	}
	for name := range ownNumbers {
		if found[name] == "" {
			t.Errorf("%s is excused, and there is no such default", name)
		}
	}
}

// standIns returns what of a declaration is called a default, or takes a number where there is none: by a
// cmp.Or that ends with one, or by an if.
func standIns(d ast.Decl) (names []string) {
	called := func(name string) bool { return strings.Contains(strings.ToLower(name), "default") }
	switch d := d.(type) {
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if v, ok := spec.(*ast.ValueSpec); ok {
				for _, name := range v.Names {
					if called(name.Name) {
						names = append(names, name.Name)
					}
				}
			}
		}
	case *ast.FuncDecl:
		replaces := called(d.Name.Name)
		ast.Inspect(d, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				replaces = replaces || isSelector(n.Fun, "cmp", "Or") && numeric(n.Args[len(n.Args)-1])
			case *ast.IfStmt:
				replaces = replaces || fillsIn(n)
			}
			return true
		})
		if replaces {
			names = append(names, d.Name.Name)
		}
	}
	return names
}

// fillsIn reports whether s puts a number where there is none: if x <= 0 { x = 5 }.
func fillsIn(s *ast.IfStmt) bool {
	cond, ok := s.Cond.(*ast.BinaryExpr)
	if !ok || !slices.Contains([]token.Token{token.EQL, token.LEQ, token.LSS}, cond.Op) ||
		types.ExprString(cond.Y) != "0" {
		return false
	}
	for _, stmt := range s.Body.List {
		set, ok := stmt.(*ast.AssignStmt)
		if ok && set.Tok == token.ASSIGN && len(set.Lhs) == 1 && numeric(set.Rhs[0]) &&
			types.ExprString(set.Lhs[0]) == types.ExprString(cond.X) {
			return true
		}
	}
	return false
}

func isSelector(e ast.Expr, pkg, name string) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != name {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == pkg
}

// numeric reports whether e is made of numbers and units of time alone.
func numeric(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Kind == token.INT || e.Kind == token.FLOAT
	case *ast.BinaryExpr:
		return numeric(e.X) && numeric(e.Y)
	case *ast.UnaryExpr:
		return numeric(e.X)
	case *ast.SelectorExpr:
		x, ok := e.X.(*ast.Ident)
		return ok && x.Name == "time"
	}
	return false
}
