package grid

import (
	"cmp"
	"fmt"
	"io"
	"strings"
)

// Largest allowed effects of wrong facts.
const (
	factsLose  = 0.02 // share of the good answers with true facts
	factsLater = 1.2  // factor of the TTFT with true facts, if the speed of links is wrong
	tellLater  = 1.15 // the same, if routers rarely share their bookings
)

// Missed reports whether Tandem misses the target. With a wrong speed of links or engines, and with routers
// that rarely share, it must be nearly as good as with true facts. With any misstatement it must be as good
// as the best rival with the same wrong facts.
func (f *Facts) Missed(t *Told) bool {
	truth := &f.Told[0].Ours
	best := max(t.Knowing.Usual, t.Careless.Usual)
	switch what, _, _ := strings.Cut(t.Misstate, "="); {
	case what == "links":
		return t.Ours.Usual < truth.Usual-factsLose || t.Ours.TTFT > factsLater*truth.TTFT ||
			t.Ours.Usual < t.Careless.Usual-LossOf
	case what == "speed":
		return t.Ours.Usual < truth.Usual-factsLose || t.Ours.Usual < t.Careless.Usual-LossOf
	case strings.Contains(t.Misstate, "@"):
		return t.Ours.Usual < truth.Usual-factsLose || t.Ours.TTFT > tellLater*truth.TTFT
	}
	return t.Ours.Usual < best-LossOf
}

// PrintFacts writes two tables in Markdown: the results of Tandem with each misstatement, misses in bold, and
// the results of the best rivals with the same misstatement.
func PrintFacts(w io.Writer, all []Facts) error {
	var text strings.Builder
	text.WriteString("What if the facts are wrong: good answers in %, mean seconds to the first token.\n\n")
	printTold(&text, all, func(f *Facts, t *Told) string {
		if f.Missed(t) {
			return "**" + brief(&t.Ours) + "**"
		}
		return brief(&t.Ours)
	})
	text.WriteString("The same of the best rival that goes by speeds; of the best one that does not.\n\n")
	printTold(&text, all, func(_ *Facts, t *Told) string {
		return brief(&t.Knowing) + "; " + brief(&t.Careless)
	})
	_, err := io.WriteString(w, text.String())
	return err
}

// printTold writes a table with a row for each fleet and a column for each misstatement.
func printTold(text *strings.Builder, all []Facts, cell func(f *Facts, t *Told) string) {
	text.WriteString("| fleet, load")
	for _, m := range Misstatements {
		text.WriteString(" | " + cmp.Or(m, "true facts"))
	}
	fmt.Fprintf(text, " |\n%s|\n", strings.Repeat("|---", len(Misstatements)+1))
	for i := range all {
		f := &all[i]
		fmt.Fprintf(text, "| %s, %.3g", f.Fleet, f.Load)
		for j := range f.Told {
			text.WriteString(" | " + cell(f, &f.Told[j]))
		}
		text.WriteString(" |\n")
	}
	text.WriteString("\n")
}

func brief(f *Figures) string { return fmt.Sprintf("%.1f, %.2f", 100*f.Usual, f.TTFT) }
