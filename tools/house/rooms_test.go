package house_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/tools/house"
)

const module = "github.com/tandem-router/tandem"

// room is a row of the table in ARCHITECTURE.md.
type room struct {
	name     string // folder
	still    bool
	anything bool     // may import every room
	allowed  []string // folders of rooms
}

// rooms reads the table, top to bottom.
func rooms(t *testing.T) []room {
	t.Helper()
	var all []room
	var arrows []string
	for _, row := range house.Rows(document(t, "ARCHITECTURE.md")) {
		for _, folder := range row.Rooms {
			all = append(all, room{name: folder, still: strings.HasPrefix(row.Sentence, "still:")})
			arrows = append(arrows, row.Imports)
		}
	}
	if len(all) < 10 {
		t.Fatalf("ARCHITECTURE.md has a table of %d rooms", len(all))
	}
	for i := range all {
		all[i].resolve(t, arrows[i], all)
	}
	return all
}

// resolve turns the third column into folders: short names are the last part of a folder.
func (r *room) resolve(t *testing.T, arrows string, all []room) {
	t.Helper()
	switch arrows {
	case "anything":
		r.anything = true
		return
	case "all below":
		at := slices.IndexFunc(all, func(o room) bool { return o.name == r.name })
		for _, o := range all[at+1:] {
			r.allowed = append(r.allowed, o.name)
		}
		return
	case "nothing":
		return
	}
	for short := range strings.SplitSeq(arrows, ",") {
		short = strings.TrimSpace(short)
		at := slices.IndexFunc(all, func(o room) bool { return path.Base(o.name) == short })
		if at < 0 {
			t.Errorf("ARCHITECTURE.md lets %s import %s, which is no room", r.name, short)
			continue
		}
		r.allowed = append(r.allowed, all[at].name)
	}
}

// ARCHITECTURE.md has one table for the product, short enough to read at once, and one table for the
// laboratory.
func TestTwoTables(t *testing.T) {
	atRoot(t)
	_, rest, _ := strings.Cut(document(t, "ARCHITECTURE.md"), "## The product")
	product, rest, found := strings.Cut(rest, "## The laboratory")
	laboratory, _, _ := strings.Cut(rest, "\n## ")
	if !found || strings.Count(product, "\n|---") != 1 || strings.Count(laboratory, "\n|---") != 1 {
		t.Error("ARCHITECTURE.md has not one table of the product and one of the laboratory")
	}
	if n := len(house.Rows(product)); n < 20 || n > 35 {
		t.Errorf("ARCHITECTURE.md has %d rows for the product, at most 35 are wanted", n)
	}
	for _, row := range house.Rows(laboratory) {
		if !strings.HasPrefix(row.Rooms[0], "internal/lab/") {
			t.Errorf("ARCHITECTURE.md has %s in the table of the laboratory", row.Rooms[0])
		}
	}
	if strings.Contains(product, "`internal/lab/") {
		t.Error("ARCHITECTURE.md has a room of the laboratory in the table of the product")
	}
}

func (r *room) may(other string) bool {
	return r.anything || other == r.name || slices.Contains(r.allowed, other)
}

// roomOf finds the room of a folder, nil without one. Longer names come first.
func roomOf(all []room, folder string) *room {
	var best *room
	for i, r := range all {
		if (folder == r.name || strings.HasPrefix(folder, r.name+"/")) &&
			(best == nil || len(r.name) > len(best.name)) {
			best = &all[i]
		}
	}
	return best
}

// source is one Go file.
type source struct {
	folder, name string
	file         *ast.File
	set          *token.FileSet
}

func (s source) at(n ast.Node) string {
	return fmt.Sprintf("%s/%s:%d", s.folder, s.name, s.set.Position(n.Pos()).Line)
}

func (s source) generated() bool { return ast.IsGenerated(s.file) }

// sources parses every Go file of the module except tests.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	set := token.NewFileSet()
	err := filepath.WalkDir(".", func(p string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && p != "." &&
			(strings.HasPrefix(e.Name(), ".") || e.Name() == "testdata" || e.Name() == "build"):
			return filepath.SkipDir
		case e.IsDir() || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(set, p, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		all = append(all, source{filepath.ToSlash(filepath.Dir(p)), e.Name(), f, set})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// outside are folders of programs that are no rooms. They may import anything, and nothing imports them.
func outside(folder string) bool {
	return strings.HasPrefix(folder, "tools/") || strings.HasPrefix(folder, "examples/")
}

func imported(spec *ast.ImportSpec) string {
	p, _ := strconv.Unquote(spec.Path.Value)
	return p
}

// A room imports only the rooms that ARCHITECTURE.md allows.
func TestArrows(t *testing.T) {
	atRoot(t)
	all := rooms(t)
	for _, s := range sources(t) {
		if outside(s.folder) {
			continue
		}
		from := roomOf(all, s.folder)
		if from == nil {
			t.Errorf("%s is in no room of ARCHITECTURE.md", s.folder)
			continue
		}
		for _, spec := range s.file.Imports {
			folder, ours := strings.CutPrefix(imported(spec), module+"/")
			if !ours {
				continue
			}
			switch to := roomOf(all, folder); {
			case to == nil:
				t.Errorf("%s imports %s, which is no room", s.at(spec), folder)
			case !from.may(to.name):
				t.Errorf("%s imports %s; ARCHITECTURE.md lets %s import %v", s.at(spec), folder, from.name, from.allowed)
			}
		}
	}
}

// No room of the product imports the laboratory. Only the binary's main package does, for its subcommands.
func TestTheProductDoesNotNeedTheLaboratory(t *testing.T) {
	atRoot(t)
	products := 0
	for _, s := range sources(t) {
		if outside(s.folder) || strings.HasPrefix(s.folder, "internal/lab/") || s.folder == "cmd/tandem" {
			continue
		}
		products++
		for _, spec := range s.file.Imports {
			if strings.HasPrefix(imported(spec), module+"/internal/lab/") {
				t.Errorf("%s imports the laboratory: %s", s.at(spec), imported(spec))
			}
		}
	}
	if products < 200 {
		t.Errorf("the test saw %d files of the product", products)
	}
}

// noisy reports imports that a still room must not have: sockets, files, processes, logs.
func noisy(p string) bool {
	if p == "net/netip" || p == "net/url" {
		return false // values only
	}
	first, _, _ := strings.Cut(p, "/")
	return slices.Contains([]string{"net", "os", "log", "syscall", "plugin", "database"}, first) ||
		p == "crypto/rand" || p == "runtime" || p == "unsafe"
}

var (
	clock = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}
	// Of math/rand; the rest is the global one.
	dice = []string{"New", "NewPCG", "NewChaCha8", "NewZipf", "Rand", "Source", "PCG", "ChaCha8", "Zipf"}
)

// Still rooms start no goroutine, read no clock, use no global random source, and have no effects outside.
func TestStillRoomsAreStill(t *testing.T) {
	atRoot(t)
	all := rooms(t)
	var still []string
	for _, s := range sources(t) {
		r := roomOf(all, s.folder)
		if r == nil || !r.still {
			continue
		}
		still = append(still, r.name)
		s.checkStill(t)
	}
	for _, want := range []string{
		"internal/kv", "internal/replica", "scoring", "prefill", "decode", "connector", "orchestrator/planner",
		"internal/lab/enginesim/core",
	} {
		if !slices.Contains(still, want) {
			t.Errorf("%s is not called still in ARCHITECTURE.md, or has no source", want)
		}
	}
}

func (s source) checkStill(t *testing.T) {
	t.Helper()
	names := map[string]string{} // local name -> path
	for _, spec := range s.file.Imports {
		p := imported(spec)
		if noisy(p) {
			t.Errorf("%s imports %s in a still room", s.at(spec), p)
		}
		name := path.Base(strings.TrimSuffix(p, "/v2"))
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = p
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			t.Errorf("%s starts a goroutine in a still room", s.at(n))
		case *ast.SelectorExpr:
			s.checkUse(t, n, names)
		}
		return true
	})
}

func (s source) checkUse(t *testing.T, n *ast.SelectorExpr, names map[string]string) {
	t.Helper()
	x, ok := n.X.(*ast.Ident)
	if !ok {
		return
	}
	switch p := names[x.Name]; {
	case p == "time" && slices.Contains(clock, n.Sel.Name):
		t.Errorf("%s reads the clock (time.%s) in a still room: take now time.Time", s.at(n), n.Sel.Name)
	case strings.HasPrefix(p, "math/rand") && !slices.Contains(dice, n.Sel.Name):
		t.Errorf("%s uses global random numbers (rand.%s) in a still room: take a *rand.Rand", s.at(n), n.Sel.Name)
	}
}

// Wiring is explicit: an import alone has no effect.
func TestNoInit(t *testing.T) {
	atRoot(t)
	for _, s := range sources(t) {
		if s.generated() {
			continue
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s has an init function", s.at(f))
			}
		}
	}
}

// Each package says what it is, in one sentence that begins with its name, in one file.
func TestPackageDocs(t *testing.T) {
	atRoot(t)
	docs := map[string][]string{} // folder -> doc comments
	for _, s := range sources(t) {
		docs[s.folder] = append(docs[s.folder], nil...)
		if s.file.Doc == nil {
			continue
		}
		want := "Package " + s.file.Name.Name + " "
		if s.file.Name.Name == "main" {
			want = "Command " + path.Base(s.folder) + " "
		}
		text := s.file.Doc.Text()
		if first, _, _ := strings.Cut(text, "\n\n"); !strings.HasPrefix(text, want) ||
			!strings.HasSuffix(strings.TrimSpace(first), ".") {
			t.Errorf("%s: the package comment does not begin with a sentence %q...", s.at(s.file), want)
		}
		docs[s.folder] = append(docs[s.folder], s.name)
	}
	for _, folder := range slices.Sorted(maps.Keys(docs)) {
		if n := len(docs[folder]); n != 1 {
			t.Errorf("%s has %d package comments %v, want 1", folder, n, docs[folder])
		}
	}
}

// Every room of ARCHITECTURE.md has Go files.
func TestEveryRoomExists(t *testing.T) {
	atRoot(t)
	for _, r := range rooms(t) {
		if files, err := filepath.Glob(filepath.Join(filepath.FromSlash(r.name), "*.go")); err != nil ||
			len(files) == 0 {
			t.Errorf("ARCHITECTURE.md has a room %s without Go files", r.name)
		}
	}
}
