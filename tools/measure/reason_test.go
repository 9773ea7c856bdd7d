package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The check names a function or a file over its limit, unless a reason is written at the right place.
func TestCheck(t *testing.T) {
	body := "() {\n" + strings.Repeat("\tprintln()\n", longFunction-1) + "}\n" // one line over
	fields := " a, b, c, d, e, f, g, h, i, j, k, l, m int "
	rows := strings.Repeat("// A line.\n", longFile)
	for _, c := range []struct{ name, text, want string }{
		{
			"a long function", "package a\n\n// f is long.\nfunc f" + body,
			"a/a.go f: function of 41 lines, over 40 without a reason\n",
		},
		{"one with a reason", "package a\n\n// f is long.\n//\n// Long: a row\n// a line.\nfunc f" + body, ""},
		{
			"the word in the middle of a line", "package a\n\n// f is Long: yes.\nfunc f" + body,
			"a/a.go f: function of 41 lines, over 40 without a reason\n",
		},
		{"a function at the limit", "package a\n\nfunc f" + strings.Replace(body, "\tprintln()\n", "", 1), ""},
		{
			"a long file", "package a\n\n" + rows,
			"a/a.go: file of 352 lines, over 350 without a reason\n",
		},
		{"one with a reason above its imports", "package a\n\n// Long: rows.\n\nimport _ \"fmt\"\n" + rows, ""},
		{
			"a reason below them", "package a\n\nimport _ \"fmt\"\n\n// Long: rows.\n\nvar a int\n" + rows,
			"a/a.go: file of 357 lines, over 350 without a reason\n",
		},
		{
			"a reason of the first function is not the file's",
			"package a\n\n// f is.\n//\n// Long: rows.\nfunc f() {}\n" + rows,
			"a/a.go: file of 356 lines, over 350 without a reason\n",
		},
		{
			"a struct with state", "package a\n\n// t is.\ntype t struct {" + fields + "}\n",
			"a/a.go t: state struct of 13 fields, over 12 without a reason\n",
		},
		{"one with a reason", "package a\n\n// t is.\n//\n// Long: a row.\ntype t struct {" + fields + "}\n", ""},
		{
			"one with a reason in a group",
			"package a\n\ntype (\n\t// t is.\n\t//\n\t// Long: a row.\n\tt struct {" + fields + "}\n)\n", "",
		},
		{"a folder that is passed over", "package b\n\nfunc f" + body, ""},
		{"a file that is passed over", "package c\n\nfunc f" + body, ""},
		{
			"a folder whose name begins alike", "package bb\n\nfunc f" + body,
			"bb/bb.go f: function of 41 lines, over 40 without a reason\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			folder, _, _ := strings.Cut(c.text[len("package "):], "\n")
			if err := os.Mkdir(filepath.Join(dir, folder), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, folder, folder+".go"), []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			err := check(&out, dir, []string{"b", "c/c.go"})
			if out.String() != c.want {
				t.Errorf("got %q, want %q", out.String(), c.want)
			}
			if (err != nil) != (c.want != "") {
				t.Errorf("fails with %v", err)
			}
		})
	}
}

// The reason of a long thing stands beside it in the report, with the lines of its comment joined.
func TestReasonInTheReport(t *testing.T) {
	var out strings.Builder
	list(&out, "long", nil, []named{{"a.go f", 50, "a row a line."}, {"a.go g", 45, ""}}, longFunction)
	if want := "long\n  - → 50\ta.go f: a row a line.\n  - → 45\ta.go g\n\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}
