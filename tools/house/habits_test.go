package house_test

import (
	"go/ast"
	"testing"
)

// No statement assigns three values side by side, because a reader would have to count commas. The results of
// one call are allowed.
func TestNoParallelAssignments(t *testing.T) {
	atRoot(t)
	for _, s := range goFiles(t) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			targets, values := 0, 0
			switch n := n.(type) {
			case *ast.AssignStmt:
				targets, values = len(n.Lhs), len(n.Rhs)
			case *ast.ValueSpec:
				targets, values = len(n.Names), len(n.Values)
			}
			if targets > 2 && values > 1 {
				t.Errorf("%s assigns %d values side by side", s.at(n), targets)
			}
			return true
		})
	}
}
