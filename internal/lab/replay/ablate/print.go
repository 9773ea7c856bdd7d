package ablate

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// Print writes the result as a table.
func (x *Result) Print(w io.Writer) error {
	out := bufio.NewWriter(w)
	blind := 0
	for name := range x.Reference {
		if kind, _, _ := strings.Cut(name, "/"); blindKind(kind) {
			blind++
		}
	}
	fmt.Fprintf(out, "%d cells, %d of them with blind kinds of traffic. Without the mechanism:\n"+
		"lines of code and named numbers that it has, about; points of good answers, of good answers in\n"+
		"blind cells, of answers within the tight goal;\n"+
		"times the time to first token; worst cells.\n\n",
		len(x.Reference), blind)
	fmt.Fprintf(out, "| off | lines | constants | good | blind good | tight | first token | "+
		"worst cell, good | worst cell, tight |\n"+
		"|---|---|---|---|---|---|---|---|---|\n")
	fmt.Fprintf(out, "| noise, ± | | | %.2f | %.2f | %.2f | x %.3f | %s | %s |\n", x.Noise.Good, x.Noise.Blind,
		x.Noise.Tight, x.Noise.TTFT, x.Noise.Worst, x.Noise.WorstTight)
	for _, e := range x.Effects {
		fmt.Fprintf(out, "| %s | %d | %d | %+.2f | %+.2f | %+.2f | x %.3f | %s | %s |\n", e.Mechanism, e.Lines,
			e.Constants, e.Good, e.Blind,
			e.Tight, e.TTFT, e.Worst, e.WorstTight)
	}
	for _, line := range x.NotPlayed {
		fmt.Fprintf(out, "not played: %s\n", line)
	}
	return out.Flush()
}

func (c Change) String() string {
	if c.Cell == "" {
		return "none"
	}
	return fmt.Sprintf("%+.1f %s", c.Points, c.Cell)
}
