package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tandem-router/tandem/tools/house"
)

// whole is the name of the row for all rooms together.
const whole = "whole tree"

// tree has the counts of one checkout: one entry per room, and one for all.
type tree map[string]*counts

// rooms are the folders of the tables in ARCHITECTURE.md, or none if the file is missing.
func rooms(dir string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "ARCHITECTURE.md"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []string
	for _, row := range house.Rows(string(text)) {
		all = append(all, row.Rooms...)
	}
	return all, err
}

// roomOf returns the room of a folder. A folder outside all rooms is a room of its own; for tools and
// examples, the folder one level below.
func roomOf(rooms []string, folder string) string {
	best := ""
	for _, r := range rooms {
		if (folder == r || strings.HasPrefix(folder, r+"/")) && len(r) > len(best) {
			best = r
		}
	}
	if best != "" {
		return best
	}
	if parts := strings.Split(folder, "/"); len(parts) > 2 {
		return strings.Join(parts[:2], "/")
	}
	return folder
}

// measure counts the Go files below dir.
func measure(dir string) (tree, error) {
	known, err := rooms(dir)
	if err != nil {
		return nil, err
	}
	t, sources := tree{whole: new(counts)}, map[string][]*source{}
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && path != dir && skipped(e.Name()):
			return filepath.SkipDir
		case e.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		f, err := read(path, filepath.ToSlash(name))
		if err != nil || ast.IsGenerated(f.syntax) {
			return err
		}
		room := roomOf(known, filepath.ToSlash(filepath.Dir(name)))
		if t[room] == nil {
			t[room] = new(counts)
		}
		t[room].file(f)
		t[whole].file(f)
		sources[room] = append(sources[room], f)
		return nil
	})
	t.together(sources)
	maps.DeleteFunc(t, func(_ string, c *counts) bool { return len(c.files) == 0 }) // only tests
	if err == nil && len(t) == 0 {
		err = fmt.Errorf("no Go files in %s", dir)
	}
	return t, err
}

// together computes the counts that need all files of a package.
func (t tree) together(rooms map[string][]*source) {
	v := newValues(slices.Concat(slices.Collect(maps.Values(rooms))...))
	for room, files := range rooms {
		all := rings(files)
		for _, c := range []*counts{t[room], t[whole]} {
			c.nested(files, v)
			c.rings = append(c.rings, all...)
		}
	}
}

func skipped(folder string) bool {
	return strings.HasPrefix(folder, ".") || folder == "testdata" || folder == "build" || folder == "vendor"
}

// source is one parsed file.
type source struct {
	name   string // from the root of the checkout
	text   []byte
	set    *token.FileSet
	syntax *ast.File
}

func (f *source) line(p token.Pos) int { return f.set.Position(p).Line }

func (f *source) offset(p token.Pos) int { return f.set.Position(p).Offset }

func (f *source) test() bool { return strings.HasSuffix(f.name, "_test.go") }

func read(path, name string) (*source, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f := &source{name: name, text: text, set: token.NewFileSet()}
	f.syntax, err = parser.ParseFile(f.set, path, text, parser.ParseComments|parser.SkipObjectResolution)
	return f, err
}
