package main

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/report.txt anew")

func mustMeasure(t *testing.T, dir string) tree {
	t.Helper()
	got, err := measure(dir)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// Every count of testdata/tree/plan/plan.go and its test, counted by hand.
func TestCountsOfOneRoom(t *testing.T) {
	c := mustMeasure(t, "testdata/tree")["plan"]
	if c == nil {
		t.Fatal("no room plan")
	}
	for _, f := range []struct {
		what      string
		got, want int
	}{
		{"files", len(c.files), 1},
		{"lines that are not blank", c.lines, 27},
		{"lines with a token", c.codeLines, 23},
		{"of tests", c.testLines, 8},
		{"functions", len(c.functions), 4},
		{"lines of Take", c.functions[0].n, 6},
		{"tokens of Give", c.weights[1], 18},
		{"tokens of Free", c.weights[3], 6},
		{"lines over 100 columns", c.width.over100, 1},
		{"over 110", c.width.over110, 0},
		{"assignments to three", c.width.manyTargets, 1},
		{"lines with a comment", c.comment.commentLines, 8},
		{"structs with something of their own", len(c.states.fields), 1},
		{"fields of Pool", c.states.fields[0].n, 4},
		{"exported", c.api.exported, 8},
		{"without doc", c.api.undocumented, 3},
		{"runnable examples", c.api.examples, 1},
	} {
		if f.got != f.want {
			t.Errorf("%s: %d, want %d", f.what, f.got, f.want)
		}
	}
	if name := c.functions[0].name; name != "plan/plan.go Pool.Take" {
		t.Errorf("the first function is %q", name)
	}
}

// A folder belongs to the deepest room of the table above it. A folder in no room is a room of its own.
func TestRooms(t *testing.T) {
	got := mustMeasure(t, "testdata/tree")
	for _, room := range []string{"plan", "plan/deep", "tools/lab", whole} {
		if got[room] == nil {
			t.Errorf("no room %s", room)
		}
	}
	if len(got) != 4 {
		t.Errorf("%d rooms, want 4: a folder with tests only is no room", len(got))
	}
	if n := len(got[whole].functions); n != 6 {
		t.Errorf("%d functions in all, want 6", n)
	}
	if _, err := measure(t.TempDir()); err == nil {
		t.Error("an empty folder was measured")
	}
}

func TestQuantiles(t *testing.T) {
	for _, c := range []struct {
		values []int
		want   string
	}{
		{nil, "-"},
		{[]int{7}, "7/7/7"},
		{[]int{3, 1, 2, 4}, "2/4/4"},
		{[]int{10, 9, 8, 7, 6, 5, 4, 3, 2, 1}, "5/9/10"},
	} {
		if got := quantiles(c.values, 50, 90, 100); got != c.want {
			t.Errorf("%v: %s, want %s", c.values, got, c.want)
		}
	}
}

// The report shows changes from one checkout to another, and added and removed items.
func TestReport(t *testing.T) {
	before, after := mustMeasure(t, "testdata/tree"), mustMeasure(t, "testdata/later")
	var out strings.Builder
	if err := report(&out, before, after); err != nil {
		t.Fatal(err)
	}
	const file = "testdata/report.txt"
	if *update {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
