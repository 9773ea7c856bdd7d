package main

import (
	"go/ast"
	"path"
)

// values counts the values of a struct, including nested structs of the same package. A limit on direct
// fields could be met by nesting; a limit on values cannot.
type values struct {
	types map[string]ast.Expr // by folder and name: see typeKey
	open  map[string]bool     // types being counted, against types that contain themselves
}

// typeKey names a type of a folder.
func typeKey(folder, name string) string { return folder + " " + name }

// newValues reads the types that files declare, tests excluded.
func newValues(files []*source) *values {
	v := &values{types: map[string]ast.Expr{}, open: map[string]bool{}}
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
				if t, ok := s.(*ast.TypeSpec); ok {
					v.types[typeKey(path.Dir(f.name), t.Name.Name)] = t.Type
				}
			}
		}
	}
	return v
}

// of returns the number of values in a type of a folder. Everything but a struct of the folder is one value,
// also a pointer, a slice, a map or an array.
func (v *values) of(folder string, t ast.Expr) int {
	switch t := t.(type) {
	case *ast.StructType:
		n := 0
		for _, f := range t.Fields.List {
			n += max(1, len(f.Names)) * v.of(folder, f.Type)
		}
		return n
	case *ast.IndexExpr: // a generic type
		return v.of(folder, t.X)
	case *ast.IndexListExpr:
		return v.of(folder, t.X)
	case *ast.Ident:
		key := typeKey(folder, t.Name)
		of, known := v.types[key]
		if !known || v.open[key] {
			return 1
		}
		v.open[key] = true
		defer delete(v.open, key)
		return max(1, v.of(folder, of))
	default:
		return 1
	}
}
