package main

import "go/ast"

// chains counts the expressions of a package that go through three or more owners, such as h.j.q and
// a.h.j.q.o.m. An owner is a field that points to a struct of its own package, or the variable before the
// first field. Each expression counts once. Only names are compared: a field counts if some struct of the
// package has a field of this name that points to a struct of the package.
func chains(files []*source) (n int) {
	owners := ownersIn(files)
	for _, f := range files {
		n += longChains(f.syntax, owners)
	}
	return n
}

// ownersIn are the names of fields that point to a struct that the files declare.
func ownersIn(files []*source) map[string]bool {
	structs := map[string]*ast.StructType{}
	for _, f := range files {
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if s, ok := spec.Type.(*ast.StructType); ok {
					structs[spec.Name.Name] = s
				}
			}
			return true
		})
	}
	owners := map[string]bool{}
	for _, s := range structs {
		for _, field := range s.Fields.List {
			to, _ := field.Type.(*ast.StarExpr)
			if to == nil {
				continue
			}
			if of, ok := to.X.(*ast.Ident); ok && structs[of.Name] != nil {
				for _, name := range field.Names {
					owners[name.Name] = true
				}
			}
		}
	}
	return owners
}

// longChains counts the expressions in a part of a file that select two or more owners in a row.
func longChains(part ast.Node, owners map[string]bool) (n int) {
	ast.Inspect(part, func(x ast.Node) bool {
		e, ok := x.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		found, last := false, false
		for {
			owner := owners[e.Sel.Name]
			found = found || owner && last
			last = owner
			of, ok := e.X.(*ast.SelectorExpr)
			if !ok {
				break
			}
			e = of
		}
		n += btoi(found) + longChains(e.X, owners) // the called or indexed expression may have more chains
		return false
	})
	return n
}
