package main

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// constants counts the named numbers of a file. A number that is computed from other names of this project
// counts only if it adds a number of its own other than 0 and 1. The values of an enumeration (iota) do not
// count.
func constants(f *source) (n int) {
	ast.Inspect(f.syntax, func(node ast.Node) bool {
		d, ok := node.(*ast.GenDecl)
		if !ok || d.Tok != token.CONST {
			return true
		}
		for _, s := range d.Specs {
			for _, value := range s.(*ast.ValueSpec).Values {
				n += btoi(isNumber(value))
			}
		}
		return false
	})
	return n
}

// isNumber reports whether the value of a constant is a number of its own.
func isNumber(value ast.Expr) bool {
	var names, own, other bool // names of this project; numbers except 0 and 1; texts, booleans and iota
	ast.Inspect(value, func(node ast.Node) bool {
		switch x := node.(type) {
		case *ast.BasicLit:
			other = other || x.Kind == token.STRING || x.Kind == token.CHAR
			own = own || x.Value != "0" && x.Value != "1"
		case *ast.SelectorExpr: // time.Second, math.MaxInt64; or another room's constant
			from, _ := x.X.(*ast.Ident)
			names = names || from == nil || from.Name != "time" && from.Name != "math"
			return false
		case *ast.Ident:
			other = other || slices.Contains([]string{"iota", "true", "false"}, x.Name)
			names = names || !isBasic(x.Name)
		}
		return true
	})
	return !other && (own || !names)
}

// isBasic reports whether a name is a numeric type, as in float64(3).
func isBasic(name string) bool {
	return strings.HasPrefix(name, "int") || strings.HasPrefix(name, "uint") ||
		strings.HasPrefix(name, "float")
}

// extent is the amount of code of some rooms together.
type extent struct{ lines, constants int }

// sizeOf adds up the selected rooms.
func (t tree) sizeOf(wanted func(room string) bool) (s extent) {
	for room, c := range t {
		if room != whole && wanted(room) {
			s.lines += c.codeLines
			s.constants += c.api.constants
		}
	}
	return s
}

// sized are the parts of the project that have limits.
var sized = []struct {
	name string
	room func(string) bool
}{{"decision", decides}, {"product", ships}}

// decides reports whether a room takes part in the decision where a request goes.
func decides(room string) bool {
	top, _, _ := strings.Cut(room, "/")
	return top == "scoring" || top == "prefill" || top == "decode" || slices.Contains([]string{
		"internal/estimate", "internal/kv", "internal/roster", "orchestrator/outlier", "orchestrator/planner",
	}, room)
}

// ships reports whether a room is part of the product: neither laboratory nor tool.
func ships(room string) bool {
	top, _, _ := strings.Cut(room, "/")
	return top != "tools" && top != "examples" && !strings.HasPrefix(room+"/", "internal/lab/")
}
