package main

import (
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ring is the largest set of files of one package in which each file needs each other file, by names. It also
// has the package's chains of owners, and the number of files with methods of each type.
type ring struct {
	folder  string
	files   int     // in the ring; 1 if no two files need each other
	of      int     // in the package
	chains  int     // expressions of the package that go through three or more owners
	methods []named // by "folder type": number of files with methods of the type
}

// rings finds the ring of each folder. Tests are left out.
//
// A file needs another file if it uses a name, a method or a field that only the other file declares. Only
// names are compared, not types. A name that several files declare makes no arrow, so the count is rather too
// low. A name that follows the name of an imported package makes no arrow either.
func rings(files []*source) []ring {
	folders := map[string][]*source{}
	for _, f := range files {
		if !f.test() {
			folders[path.Dir(f.name)] = append(folders[path.Dir(f.name)], f)
		}
	}
	var all []ring
	for folder, in := range folders {
		all = append(all, ring{folder, largest(arrows(in)), len(in), chains(in), spread(in)})
	}
	slices.SortFunc(all, func(a, b ring) int {
		if a.files != b.files {
			return b.files - a.files
		}
		return strings.Compare(a.folder, b.folder)
	})
	return all
}

// arrows returns, for each file, the files that it needs.
func arrows(files []*source) [][]int {
	tops, members := declared(files, topNames), declared(files, memberNames)
	out := make([][]int, len(files))
	for i, f := range files {
		needs := map[int]bool{}
		selected := map[*ast.Ident]bool{}
		imports := importNames(f)
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				selected[n.Sel] = true
				if of, ok := n.X.(*ast.Ident); ok && imports[of.Name] {
					return true
				}
				if at, one := members[n.Sel.Name]; one && at >= 0 {
					needs[at] = true
				}
			case *ast.Ident:
				if at, one := tops[n.Name]; one && at >= 0 && !selected[n] {
					needs[at] = true
				}
			}
			return true
		})
		delete(needs, i)
		for at := range needs {
			out[i] = append(out[i], at)
		}
	}
	return out
}

// majorVersion is the last part of a module path that names a version.
var majorVersion = regexp.MustCompile(`^v[0-9]+$`)

// importNames are the names by which a file refers to the packages that it imports.
func importNames(f *source) map[string]bool {
	names := map[string]bool{}
	for _, spec := range f.syntax.Imports {
		p, _ := strconv.Unquote(spec.Path.Value)
		if majorVersion.MatchString(path.Base(p)) {
			p = path.Dir(p)
		}
		name := path.Base(p)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = true
	}
	return names
}

// spread lists the types that have methods, with the number of files that have methods of each type.
func spread(files []*source) []named {
	in := map[string]map[string]bool{}
	for _, f := range files {
		for _, d := range f.syntax.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv == nil {
				continue
			}
			name := path.Dir(f.name) + " " + receiver(fn)
			if in[name] == nil {
				in[name] = map[string]bool{}
			}
			in[name][f.name] = true
		}
	}
	var all []named
	for name, files := range in {
		all = append(all, named{name: name, n: len(files)})
	}
	return all
}

// methodsOf lists the types of all folders that have methods.
func methodsOf(all []ring) (types []named) {
	for _, r := range all {
		types = append(types, r.methods...)
	}
	return types
}

// declared maps each name to the file that declares it, and to -1 if several files declare it.
func declared(files []*source, names func(ast.Decl) []string) map[string]int {
	out := map[string]int{}
	for i, f := range files {
		for _, d := range f.syntax.Decls {
			for _, name := range names(d) {
				if at, known := out[name]; known && at != i {
					out[name] = -1
				} else {
					out[name] = i
				}
			}
		}
	}
	return out
}

// topNames are the names that a declaration declares at the top level of its file.
func topNames(d ast.Decl) []string {
	var out []string
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil && d.Name.Name != "init" {
			out = append(out, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				out = append(out, s.Name.Name)
			case *ast.ValueSpec:
				for _, n := range s.Names {
					out = append(out, n.Name)
				}
			}
		}
	}
	return slices.DeleteFunc(out, func(name string) bool { return name == "_" })
}

// memberNames are the methods and fields that a declaration gives to its types.
func memberNames(d ast.Decl) []string {
	var out []string
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv != nil {
			out = append(out, d.Name.Name)
		}
	case *ast.GenDecl:
		ast.Inspect(d, func(n ast.Node) bool {
			if t, ok := n.(*ast.StructType); ok {
				for _, f := range t.Fields.List {
					for _, id := range f.Names {
						out = append(out, id.Name)
					}
				}
			}
			return true
		})
	}
	return out
}

// largest is the size of the largest strongly connected part of a graph (Tarjan's algorithm), at least 1.
func largest(arrows [][]int) int {
	t := tarjan{
		arrows: arrows, index: make([]int, len(arrows)), low: make([]int, len(arrows)),
		onStack: make([]bool, len(arrows)),
	}
	for i := range arrows {
		if t.index[i] == 0 {
			t.visit(i)
		}
	}
	return max(1, t.best)
}

// tarjan is the state of one search.
type tarjan struct {
	arrows  [][]int
	index   []int // when each node was reached, from 1; 0 before
	low     []int // the earliest node that each node leads back to
	stack   []int
	onStack []bool
	next    int
	best    int
}

func (t *tarjan) visit(i int) {
	t.next++
	t.index[i] = t.next
	t.low[i] = t.next
	t.stack = append(t.stack, i)
	t.onStack[i] = true
	for _, to := range t.arrows[i] {
		if t.index[to] == 0 {
			t.visit(to)
			t.low[i] = min(t.low[i], t.low[to])
		} else if t.onStack[to] {
			t.low[i] = min(t.low[i], t.index[to])
		}
	}
	if t.low[i] != t.index[i] {
		return
	}
	at := slices.Index(t.stack, i)
	for _, node := range t.stack[at:] {
		t.onStack[node] = false
	}
	t.best = max(t.best, len(t.stack)-at)
	t.stack = t.stack[:at]
}
