package house_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// goneWord is an abandoned word, a row of the table in testdata/gone-words.txt.
type goneWord struct {
	word, say string
	rooms     []string // folders; nil for all
	comments  bool     // forbidden in comments too
}

var (
	goneRow  = regexp.MustCompile("(?m)^\\| (`[^|]+`) \\| ([^|]+) \\| ([^|]+) \\| (yes|no) \\|$")
	quoted   = regexp.MustCompile("`([a-z]+)`")
	namePart = regexp.MustCompile(`[A-Z]+[a-z0-9]*|[a-z0-9]+`)
	anyWord  = regexp.MustCompile(`[A-Za-z]+`)
)

// goneWords reads the table by word.
func goneWords(t *testing.T) map[string][]goneWord {
	t.Helper()
	text, err := os.ReadFile("tools/house/testdata/gone-words.txt")
	if err != nil {
		t.Fatal(err)
	}
	gone := map[string][]goneWord{}
	for _, m := range goneRow.FindAllStringSubmatch(string(text), -1) {
		w := goneWord{say: m[2], comments: m[4] == "yes"}
		if m[3] != "all" {
			w.rooms = strings.Split(m[3], ", ")
		}
		for _, room := range w.rooms {
			if _, err := os.Stat(room); err != nil {
				t.Errorf("gone-words.txt has a row for %s, which is no folder", room)
			}
		}
		for _, word := range quoted.FindAllStringSubmatch(m[1], -1) {
			w.word = word[1]
			gone[w.word] = append(gone[w.word], w)
		}
	}
	if len(gone) < 10 {
		t.Fatalf("gone-words.txt has %d words that have gone", len(gone))
	}
	return gone
}

// in reports whether w is forbidden in a folder.
func (w goneWord) in(folder string) bool {
	return w.rooms == nil || slices.ContainsFunc(w.rooms, func(room string) bool {
		return folder == room || strings.HasPrefix(folder, room+"/")
	})
}

// Abandoned words do not come back in names. If they are no everyday English, they do not come back in
// comments either.
func TestWordsThatHaveGone(t *testing.T) {
	atRoot(t)
	gone := goneWords(t)
	for _, s := range goFiles(t) {
		if s.generated() {
			continue
		}
		for _, name := range s.declared() {
			for _, part := range namePart.FindAllString(name.Name, -1) {
				for _, w := range gone[strings.ToLower(part)] {
					if w.in(s.folder) {
						t.Errorf("%s: %s has the word %q; gone-words.txt: say %s", s.at(name), name.Name, w.word, w.say)
					}
				}
			}
		}
		for _, group := range s.file.Comments {
			for _, word := range anyWord.FindAllString(group.Text(), -1) {
				for _, w := range gone[strings.ToLower(word)] {
					if w.comments && w.in(s.folder) {
						t.Errorf("%s: the comment has the word %q; gone-words.txt: say %s", s.at(group), w.word, w.say)
					}
				}
			}
		}
	}
}

// declared returns the names that a file declares: of types, functions, values, fields, parameters and
// variables.
func (s source) declared() (names []*ast.Ident) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			names = append(names, n.Name)
		case *ast.TypeSpec:
			names = append(names, n.Name)
		case *ast.ValueSpec:
			names = append(names, n.Names...)
		case *ast.Field:
			names = append(names, n.Names...)
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				names = append(names, identifiers(n.Lhs...)...)
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				names = append(names, identifiers(n.Key, n.Value)...)
			}
		}
		return true
	})
	return names
}

func identifiers(exprs ...ast.Expr) (names []*ast.Ident) {
	for _, e := range exprs {
		if name, ok := e.(*ast.Ident); ok {
			names = append(names, name)
		}
	}
	return names
}

// goFiles parses every Go file of ours, tests included.
func goFiles(t *testing.T) []source {
	t.Helper()
	all := sources(t)
	set := token.NewFileSet()
	folders := map[string]bool{}
	for _, s := range all {
		folders[s.folder] = true
	}
	folders["."] = true
	for folder := range folders {
		tests, err := filepath.Glob(filepath.Join(filepath.FromSlash(folder), "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range tests {
			f, err := parser.ParseFile(set, name, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, source{folder, filepath.Base(name), f, set})
		}
	}
	return all
}
