package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// column is one figure of a room.
type column struct {
	title string
	of    func(*counts) string
}

// sections are the printed tables. Each is narrow enough for a screen.
var sections = [][]column{
	{
		{"files", func(c *counts) string { return fmt.Sprint(len(c.files)) }},
		{"code lines", func(c *counts) string { return fmt.Sprint(c.codeLines) }},
		{"named numbers", func(c *counts) string { return fmt.Sprint(c.api.constants) }},
		{"test:code", func(c *counts) string { return ratio(c.testLines, c.codeLines, 1, "%.2f") }},
		{"file lines p50/p90/max", func(c *counts) string { return quantiles(sizes(c.files), 50, 90, 100) }},
		{"files over 350", func(c *counts) string { return fmt.Sprint(over(c.files, longFile)) }},
		{"without a reason", func(c *counts) string { return fmt.Sprint(len(unexplained(c.files, longFile))) }},
	},
	{
		{"functions", func(c *counts) string { return fmt.Sprint(len(c.functions)) }},
		{"lines p50/p90/p99/max", func(c *counts) string { return quantiles(sizes(c.functions), 50, 90, 99, 100) }},
		{"tokens p50/p90/p99/max", func(c *counts) string { return quantiles(c.weights, 50, 90, 99, 100) }},
		{"over 40 lines", func(c *counts) string { return fmt.Sprint(over(c.functions, longFunction)) }},
		{"without a reason", func(c *counts) string {
			return fmt.Sprint(len(unexplained(c.functions, longFunction)))
		}},
	},
	{
		{"tokens a code line", func(c *counts) string { return ratio(c.tokens, c.codeLines, 1, "%.1f") }},
		{"lines over 100", func(c *counts) string { return ratio(c.width.over100, c.lines, 100, "%.1f %%") }},
		{"over 110", func(c *counts) string { return fmt.Sprint(c.width.over110) }},
		{"3+ targets per 1,000", func(c *counts) string {
			return ratio(c.width.manyTargets, c.codeLines, 1000, "%.1f")
		}},
		{"comments: bytes", func(c *counts) string {
			return ratio(c.comment.commentBytes, c.comment.bytes, 100,
				"%.0f %%")
		}},
		{"their lines", func(c *counts) string { return ratio(c.comment.commentLines, c.lines, 100, "%.0f %%") }},
	},
	{
		{"state structs", func(c *counts) string { return fmt.Sprint(len(c.states.fields)) }},
		{"fields p50/p90/max", func(c *counts) string { return quantiles(sizes(c.states.fields), 50, 90, 100) }},
		{"over 12 fields", func(c *counts) string { return fmt.Sprint(over(c.states.fields, manyFields)) }},
		{"without a reason", func(c *counts) string {
			return fmt.Sprint(len(unexplained(c.states.fields, manyFields)))
		}},
		{"exported", func(c *counts) string { return fmt.Sprint(c.api.exported) }},
		{"without doc", func(c *counts) string { return fmt.Sprint(c.api.undocumented) }},
		{"runnable Examples", func(c *counts) string { return fmt.Sprint(c.api.examples) }},
	},
	{
		{"values of a struct, nested ones counted p50/p90/max", func(c *counts) string {
			return quantiles(sizes(c.states.values), 50, 90, 100)
		}},
		{"over 24", func(c *counts) string { return fmt.Sprint(over(c.states.values, manyValues)) }},
		{"types with methods in over 4 files", func(c *counts) string {
			return fmt.Sprint(over(methodsOf(c.rings), manyPlaces))
		}},
		{"files in one ring", func(c *counts) string { return largestRing(c.rings) }},
		{"words of comments", func(c *counts) string { return fmt.Sprint(c.comment.prose.words) }},
		{"sentences over 40 words", func(c *counts) string { return fmt.Sprint(c.comment.prose.long) }},
		{"of these/those/it/them/that per 1,000", func(c *counts) string {
			return ratio(c.comment.prose.vague, c.comment.prose.words, 1000, "%.1f")
		}},
		{"who per 1,000", func(c *counts) string {
			return ratio(c.comment.prose.who, c.comment.prose.words, 1000, "%.1f")
		}},
	},
}

// Things above these limits are listed by name.
const (
	longFile     = 350
	longFunction = 40
	manyFields   = 12
	manyValues   = 24
	manyPlaces   = 4 // files with methods of one type
)

// report prints both trees. Different figures are printed as "before → after".
func report(w io.Writer, before, after tree) error {
	all := maps.Clone(before)
	maps.Copy(all, after)
	names := slices.Collect(maps.Keys(all))
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(btoi(a == whole)-btoi(b == whole), strings.Compare(a, b))
	})
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, columns := range sections {
		fmt.Fprint(tw, "room")
		for _, c := range columns {
			fmt.Fprint(tw, "\t", c.title)
		}
		fmt.Fprintln(tw)
		for _, name := range names {
			fmt.Fprint(tw, name)
			for _, c := range columns {
				fmt.Fprint(tw, "\t", arrow(figure(before[name], c), figure(after[name], c)))
			}
			fmt.Fprintln(tw)
		}
		fmt.Fprintln(tw)
	}
	for _, x := range sized {
		was, is := before.sizeOf(x.room), after.sizeOf(x.room)
		fmt.Fprintf(tw, "%s: code lines %s, named numbers %s\n", x.name,
			arrow(fmt.Sprint(was.lines), fmt.Sprint(is.lines)),
			arrow(fmt.Sprint(was.constants), fmt.Sprint(is.constants)))
	}
	fmt.Fprintln(tw)
	b, a := before[whole], after[whole]
	list(tw, "files over 350 lines", b.files, a.files, longFile)
	list(tw, "functions over 40 lines", b.functions, a.functions, longFunction)
	list(tw, "state structs over 12 fields", b.states.fields, a.states.fields, manyFields)
	list(tw, "state structs over 24 values, nested ones counted", b.states.values, a.states.values, manyValues)
	list(tw, "types with methods in over 4 files", methodsOf(b.rings), methodsOf(a.rings), manyPlaces)
	return tw.Flush()
}

// largestRing returns "files in the ring/files in the package" for the folder with the largest ring.
func largestRing(all []ring) string {
	most := ring{}
	for _, r := range all {
		if r.files > most.files {
			most = r
		}
	}
	return fmt.Sprintf("%d/%d", most.files, most.of)
}

func figure(c *counts, col column) string {
	if c == nil {
		return "-"
	}
	return col.of(c)
}

func arrow(before, after string) string {
	if before == after {
		return after
	}
	return before + " → " + after
}

// list prints the things above the limit in either tree, the largest first, with the current reason.
func list(w io.Writer, title string, before, after []named, limit int) {
	reasons, figures := map[string]string{}, map[string]*[2]int{}
	for i, all := range [][]named{before, after} {
		for _, x := range all {
			if figures[x.name] == nil {
				figures[x.name] = new([2]int)
			}
			figures[x.name][i] = x.n
			reasons[x.name] = x.reason
		}
	}
	maps.DeleteFunc(figures, func(_ string, n *[2]int) bool { return max(n[0], n[1]) <= limit })
	names := slices.SortedFunc(maps.Keys(figures), func(a, b string) int {
		return cmp.Or(figures[b][1]-figures[a][1], figures[b][0]-figures[a][0], strings.Compare(a, b))
	})
	fmt.Fprintln(w, title)
	if len(names) == 0 {
		fmt.Fprintln(w, "  none")
	}
	for _, name := range names {
		line := "  " + arrow(size(figures[name][0]), size(figures[name][1])) + "\t" + name
		if r := reasons[name]; r != "" {
			line += ": " + r
		}
		fmt.Fprintln(w, line)
	}
	fmt.Fprintln(w)
}

// size returns n, or a dash for 0: the thing does not exist.
func size(n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

func sizes(all []named) []int {
	var out []int
	for _, x := range all {
		out = append(out, x.n)
	}
	return out
}

func over(all []named, limit int) int {
	n := 0
	for _, x := range all {
		n += btoi(x.n > limit)
	}
	return n
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// quantiles returns nearest-rank percentiles: at least so many percent of the values are not above each.
func quantiles(values []int, percents ...int) string {
	sorted := slices.Sorted(slices.Values(values))
	var out []string
	for _, p := range percents {
		if len(sorted) == 0 {
			return "-"
		}
		out = append(out, fmt.Sprint(sorted[max(0, (len(sorted)*p+99)/100-1)]))
	}
	return strings.Join(out, "/")
}

func ratio(part, all int, scale float64, format string) string {
	if all == 0 {
		return "-"
	}
	return fmt.Sprintf(format, scale*float64(part)/float64(all))
}
