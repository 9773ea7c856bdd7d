package house_test

import (
	"go/ast"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	fence = regexp.MustCompile("(?ms)^```.*?^```")
	// quotedPath is a path in backquotes without the letters of patterns and placeholders.
	quotedPath = regexp.MustCompile("`([A-Za-z0-9_.-]+/[A-Za-z0-9_./-]+|[a-z0-9_]+\\.go)`")
	quotedTest = regexp.MustCompile("`(Test[A-Z][A-Za-z0-9]*)`")
	linkTarget = regexp.MustCompile(`\]\(([^)#: ]+)(?:#[^)]*)?\)`)
)

// Every file and folder that a document names or links to exists.
func TestPathsInDocumentsExist(t *testing.T) {
	atRoot(t)
	paths, links := 0, 0
	for _, name := range documents(t) {
		text := fence.ReplaceAllString(document(t, name), "")
		for _, m := range quotedPath.FindAllStringSubmatch(text, -1) {
			if isOurs(m[1]) {
				paths++
				if !exists(m[1]) && !exists(path.Join(path.Dir(name), m[1])) {
					t.Errorf("%s: there is no %s", name, m[1])
				}
			}
		}
		for _, m := range linkTarget.FindAllStringSubmatch(text, -1) {
			links++
			if !exists(path.Join(path.Dir(name), m[1])) {
				t.Errorf("%s: there is no %s to go to", name, m[1])
			}
		}
	}
	if paths < 100 || links < 200 {
		t.Errorf("only %d paths and %d links were found", paths, links)
	}
}

// Every test that a document names exists: the tables of traps say which test plays a trap.
func TestTestsInDocumentsExist(t *testing.T) {
	atRoot(t)
	exist := map[string]bool{}
	for _, s := range goFiles(t) {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && strings.HasSuffix(s.name, "_test.go") {
				exist[f.Name.Name] = true
			}
		}
	}
	named := 0
	for _, name := range documents(t) {
		for _, m := range quotedTest.FindAllStringSubmatch(document(t, name), -1) {
			if named++; !exist[m[1]] {
				t.Errorf("%s: there is no %s", name, m[1])
			}
		}
	}
	if named < 50 {
		t.Errorf("only %d names of tests were found", named)
	}
}

// documents lists the documents of the module, without build results and test data.
func documents(t *testing.T) (names []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(p string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && p != "." &&
			(strings.HasPrefix(e.Name(), ".") || e.Name() == "testdata" || p == "build"):
			return filepath.SkipDir
		case strings.HasSuffix(p, ".md"):
			names = append(names, filepath.ToSlash(p))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// isOurs reports whether a quoted text names a path of this module: a Go file, or a path in a folder of the
// root. Paths of build results do not count, because they may be missing.
func isOurs(quoted string) bool {
	top, _, below := strings.Cut(quoted, "/")
	if !below {
		return true
	}
	return top != "build" && exists(top) && !strings.Contains(quoted, "NNNN")
}

func exists(name string) bool {
	_, err := os.Stat(filepath.FromSlash(name))
	return err == nil
}
