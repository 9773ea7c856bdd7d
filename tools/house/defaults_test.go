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

// ownNumbers are the allowed defaults outside of the configuration, each with the reason why it is no
// setting.
var ownNumbers = map[string]string{
	"internal/doctor defaultTimeout": "limit of doctor's requests, a flag",
	"internal/engine setDefaults":    "handling of connections, which follows from vLLM's server",
	"internal/kvevents withDefaults": "times of the event protocol, which tests shorten",
	"orchestrator/policy Default":    "config.Default in the planner's terms",
	"internal/estimate DefaultSpeed": "the speed of an engine from which learning begins",
}

// laboratory are the rooms whose numbers describe experiments, not settings.
var laboratory = []string{"internal/lab", "tools", "examples"}

// The default of every setting is in internal/config alone. Other rooms say what a setting means, never its
// default: once a zero meant another number and a negative number meant zero, and two places differed.
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
			t.Errorf("%s: %s has a default value; move it to config.Default", found[name], name)
		}
	}
	for name := range ownNumbers {
		if found[name] == "" {
			t.Errorf("ownNumbers has %s, but there is no such default", name)
		}
	}
}

// standIns returns the defaults in a declaration: names with "default", a cmp.Or that ends with a number, and
// an if that fills in a number.
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

// fillsIn reports whether s replaces a missing number: if x <= 0 { x = 5 }.
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

// numeric reports whether e consists of numbers and units of time alone.
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
