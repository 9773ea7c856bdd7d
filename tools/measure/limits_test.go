package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// checkout writes files into a new folder and measures it.
func checkout(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A struct counts the values of its own package's structs in it. A pointer is one value, and so is a struct
// of another package.
func TestNestedValues(t *testing.T) {
	dir := checkout(t, map[string]string{
		"a/a.go": `package a

import "b"

type outer struct {
	x, y inner
	many []inner
	to   *inner
	far  b.Inner
	inner
	twice[int]
	self *outer
	one  struct{ p, q int }
}

type inner struct{ a, b, c int }

type twice[T any] struct{ left, right T }

type open struct{ A, B, C int }
`,
	})
	got := map[string]int{}
	for _, x := range mustMeasure(t, dir)["a"].states.values {
		got[x.name] = x.n
	}
	// Two inners, one slice, one pointer, one far, an embedded inner, a twice, a pointer, a struct of two.
	want := map[string]int{"a/a.go outer": 6 + 1 + 1 + 1 + 3 + 2 + 1 + 2, "a/a.go inner": 3, "a/a.go twice": 2}
	for name, n := range want {
		if got[name] != n {
			t.Errorf("%s: %d values, want %d", name, got[name], n)
		}
	}
	if len(got) != len(want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}

// A file needs the files whose names, methods and fields it uses. Files that need each other form a ring.
func TestRingOfFiles(t *testing.T) {
	dir := checkout(t, map[string]string{
		"a/one.go":    "package a\n\nfunc one() { two() }\n\nfunc same1() {}\n",
		"a/two.go":    "package a\n\ntype t struct{ field int }\n\nfunc two() { var x s; x.method() }\n",
		"a/three.go":  "package a\n\ntype s struct{}\n\nfunc (s) method() { one() }\n",
		"a/leaf.go":   "package a\n\nfunc leaf(x t) int { return x.field }\n", // needs two.go; not needed itself
		"a/x_test.go": "package a\n\nfunc test() { leaf(t{}) }\n",
		"b/one.go":    "package b\n\nfunc one() { two() }\n",
		"b/two.go":    "package b\n\nfunc two() {}\n",
		// A name of another package is not a field with this name.
		"c/one.go": "package c\n\nimport \"m/other/v2\"\n\nfunc one() { other.Field() }\n",
		"c/two.go": "package c\n\ntype t struct{ Field int }\n\nfunc two() { one() }\n",
	})
	got := mustMeasure(t, dir)[whole].rings
	slices.SortFunc(got, func(a, b ring) int { return strings.Compare(a.folder, b.folder) })
	for i, want := range []ring{
		{folder: "a", files: 3, of: 4}, {folder: "b", files: 1, of: 2}, {folder: "c", files: 1, of: 2},
	} {
		if r := got[i]; r.folder != want.folder || r.files != want.files || r.of != want.of {
			t.Errorf("ring %+v, want %+v", r, want)
		}
	}
}

// The methods of a type are counted by file, with and without pointers and type parameters.
func TestFilesWithMethodsOfOneType(t *testing.T) {
	dir := checkout(t, map[string]string{
		"a/one.go":      "package a\n\ntype t[K any] struct{}\n\nfunc (t[K]) a() {}\n\nfunc (*t[K]) b() {}\n",
		"a/two.go":      "package a\n\nfunc (x *t[K]) c() {}\n\ntype s struct{}\n\nfunc (s) a() {}\n",
		"a/two_test.go": "package a\n\nfunc (x *t[K]) d() {}\n",
		"a/three.go":    "package a\n\nfunc t2() {}\n",
	})
	got := methodsOf(mustMeasure(t, dir)["a"].rings)
	slices.SortFunc(got, func(a, b named) int { return strings.Compare(a.name, b.name) })
	if want := []named{{name: "a s", n: 1}, {name: "a t", n: 2}}; !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A product type with methods in five files needs a line in limits.txt. A laboratory type does not.
func TestLimitOfFilesWithMethods(t *testing.T) {
	files := map[string]string{}
	for i := range manyPlaces + 1 {
		text := fmt.Sprintf("package p\n\nfunc (t) m%d() {}\n", i)
		files[fmt.Sprintf("a/%d.go", i)] = text
		files[fmt.Sprintf("internal/lab/l/%d.go", i)] = text
	}
	for _, c := range []struct{ limits, want string }{
		{"# rows\n", "methods a t: 5, over 4\n"},
		{"methods a t 4\n", "methods a t: 5, over 4\n"},
		{"methods a t 5\n", ""},
		{
			"methods a t 5\nmethods b t 5\n",
			"methods b t: nothing has that name now: delete the line in tools/measure/limits.txt\n",
		},
	} {
		files[limitsFile] = c.limits
		var out strings.Builder
		err := check(&out, checkout(t, files), nil)
		if out.String() != c.want || (err != nil) != (c.want != "") {
			t.Errorf("limits %q: got %q and %v, want %q", c.limits, out.String(), err, c.want)
		}
	}
}

// An expression through three owners counts once, at any place and at any length.
func TestChainsOfOwners(t *testing.T) {
	dir := checkout(t, map[string]string{
		"a/types.go": "package a\n\ntype o struct{ n int; f func() *r }\n\ntype q struct{ o *o }\n\n" +
			"type j struct{ q *q; s string }\n\ntype r struct{ j *j }\n",
		"a/use.go": "package a\n\nfunc use(j *j, r *r) int {\n\t_ = j.q.o.f().j.q.o.n\n\t_ = r.j.q.o.n\n" +
			"\t_ = j.q.o.n + j.q.o.n\n\to := j.q\n\t_ = o.o.n\n\treturn len(r.j.s)\n}\n",
		"a/use_test.go": "package a\n\nfunc test(j *j) int { return j.q.o.n }\n",
		"b/b.go":        "package b\n\nfunc b(j struct{ q struct{ o struct{ n int } } }) int { return j.q.o.n }\n",
	})
	for _, got := range mustMeasure(t, dir)[whole].rings {
		if want := map[string]int{"a": 5, "b": 0}[got.folder]; got.chains != want {
			t.Errorf("%d chains in %s, want %d", got.chains, got.folder, want)
		}
	}
}

func TestProse(t *testing.T) {
	long := strings.Repeat("word ", longSentence+1)
	for _, c := range []struct {
		name, text string
		want       prose
	}{
		{"two sentences", "One idea. Another one!", prose{words: 4}},
		{"a sentence that is too long", long + ".", prose{words: 41, long: 1}},
		{
			"one at the limit, and one more", "It " + strings.Repeat("word ", longSentence-1) + ". And",
			prose{words: 41},
		},
		{"words of the dialect", "The first of those who wait, of it.", prose{words: 8, vague: 2, who: 1}},
		{"a version is no end", "vLLM 0.33 has it.", prose{words: 4}},
		{"code is one word", "Say `of those who` now.", prose{words: 3}},
		{"cells are texts of their own", "| " + long + " | " + long + " |", prose{words: 82, long: 2}},
		{"items are too", "* " + long[:100] + "\n* " + long[:100], prose{words: 40}},
		{"a fence is code", "```\nof those who\n```\n\nDone.", prose{words: 1}},
		{"indented text is code", "See:\n\n    of those who\n", prose{words: 1}},
		{"a link's target is no word", "See [the page](of-it.md).", prose{words: 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var p prose
			p.document(c.text)
			if p != c.want {
				t.Errorf("counted %+v, want %+v", p, c.want)
			}
		})
	}
}

// The check names figures above a limit in limits.txt, figures above the aim without a limit, and limits of
// things that are gone.
func TestLimits(t *testing.T) {
	fields := func(n int) string { return " struct{ " + strings.Repeat("f, ", n-1) + "f int }\n" }
	big := "package a\n\n// small holds of it.\ntype small" + fields(10) +
		"\ntype big struct { a, b, c small }\n"
	files := map[string]string{"a/a.go": big, "README.md": "One of those."}
	for _, c := range []struct{ name, limits, want string }{
		{"no file, no limits", "", ""},
		{"the aim", "# rows\n", "values a/a.go big: 30, over 24\n"},
		{"as many as it may", "values a/a.go big 30\nring a 1\n", ""},
		{"more", "values a/a.go big 29\n", "values a/a.go big: 30, over 29\n"},
		{
			"prose", "values a/a.go big 30\nvague comments 0\nvague documents 0\n",
			"vague comments: 1, over 0\nvague documents: 1, over 0\n",
		},
		{
			"a thing that is gone", "values a/a.go big 30\nvalues a/gone.go x 30\n",
			"values a/gone.go x: nothing has that name now: delete the line in tools/measure/limits.txt\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := checkout(t, files)
			if c.limits != "" {
				dir = checkout(t, map[string]string{"a/a.go": big, "README.md": files["README.md"], limitsFile: c.limits})
			}
			var out strings.Builder
			err := check(&out, dir, nil)
			if out.String() != c.want || (err != nil) != (c.want != "") {
				t.Errorf("got %q and %v, want %q", out.String(), err, c.want)
			}
		})
	}
	dir := checkout(t, map[string]string{"a/a.go": "package a\n", limitsFile: "values x\n"})
	err := check(new(strings.Builder), dir, nil)
	if err == nil || !strings.Contains(err.Error(), "limits.txt:1") {
		t.Errorf("a line without a number: %v", err)
	}
}

// In the product, a ring of files and a chain of owners need a line in limits.txt. In the laboratory they do
// not.
func TestRingsAndChainsAreLimitedEverywhere(t *testing.T) {
	files := map[string]string{}
	for _, folder := range []string{"a", "internal/lab/l"} {
		for i := range fewFiles + 1 {
			files[fmt.Sprintf("%s/%d.go", folder, i)] = fmt.Sprintf("package p\n\nfunc f%d() { f%d() }\n", i, (i+1)%5)
		}
		files[folder+"/types.go"] = "package p\n\ntype o struct{ n int }\n\ntype q struct{ o *o }\n\n" +
			"type j struct{ q *q }\n\nfunc use(j *j) int { return j.q.o.n }\n"
	}
	for _, c := range []struct{ limits, want string }{
		{"# rows\n", "chains a: 1, over 0\nring a: 5, over 4\n"},
		{"chains a 1\nring a 5\n", ""},
	} {
		files[limitsFile] = c.limits
		var out strings.Builder
		err := check(&out, checkout(t, files), nil)
		if out.String() != c.want || (err != nil) != (c.want != "") {
			t.Errorf("limits %q: got %q and %v, want %q", c.limits, out.String(), err, c.want)
		}
	}
}
