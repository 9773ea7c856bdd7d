package why

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/tandem-router/tandem/scoring"
)

// Page writes r as text. With weights, it also says which of the recorded plans these weights would have
// chosen.
func (r *Record) Page(w io.Writer, other Weights) error {
	var page strings.Builder
	r.head(&page)
	r.tokens(&page)
	r.times(&page)
	r.attempts(&page)
	err := r.plans(&page, other)
	_, failed := io.WriteString(w, Plain(page.String()))
	return cmp.Or(err, failed)
}

// Plain removes control sequences for terminals from a text, because clients choose the names of models.
func Plain(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && unicode.IsControl(r) {
			return '?'
		}
		return r
	}, text)
}

// head names the request, its end, and the reason for its replicas.
func (r *Record) head(w io.Writer) {
	own := ""
	if r.ClientID != "" {
		own = " (" + r.ID + " of the router)"
	}
	fmt.Fprintf(w, "request %s%s, %s, %s",
		cmp.Or(r.ClientID, r.ID), own, r.Time.UTC().Format("2006-01-02 15:04:05.000 UTC"), r.Path)
	for _, of := range [][2]string{
		{"model", r.Model}, {"key", r.Key}, {"class", r.Class}, {"session", r.Session},
	} {
		if of[1] != "" {
			fmt.Fprintf(w, ", %s %s", of[0], of[1])
		}
	}
	fmt.Fprintf(w, "\n%s, status %d, %s%s in %s\n\n",
		r.Outcome, r.Status, r.tried(), r.counted(), span(r.Phases.Total))
	fmt.Fprintf(w, "%s (%s)\n%s\n", pair(r.Prefill, r.Decode), r.Mode, r.Reason)
	if d := r.Decision; d != nil {
		if d.Moved != nil {
			fmt.Fprintf(w, "moved from %s to %s when the prompt was computed: %s\n",
				d.Moved.From, d.Moved.To, d.Moved.Reason)
		}
		if d.Forced != "" {
			fmt.Fprintf(w, "used although ejected: %s\n", d.Forced)
		}
		if len(d.Unknown) > 0 {
			fmt.Fprintf(w, "had to be guessed: %s\n", strings.Join(d.Unknown, ", "))
		}
	}
	if r.NotRetried != "" {
		fmt.Fprintf(w, "not tried again: %s\n", r.NotRetried)
	}
	if len(r.Continued) > 0 {
		fmt.Fprintf(w, "broke off, and went on at %s\n", strings.Join(r.Continued, ", then "))
	}
	if r.NotContinued != "" {
		fmt.Fprintf(w, "broke off, and no replica continued: %s\n", r.NotContinued)
	}
}

// tried says how many attempts were needed until an answer began, and how often another engine continued it.
func (r *Record) tried() string {
	attempts := Count(r.Attempts, "attempt")
	switch n := len(r.Continued); n {
	case 0:
		return attempts
	case 1:
		return attempts + ", continued once"
	default:
		return attempts + ", continued " + strconv.Itoa(n) + " times"
	}
}

// counted returns the number of tokens as text, "" if neither number is known. No prompt is empty, so 0
// means unknown. An answer without a first content that ended well has no count.
func (r *Record) counted() string {
	prompt := strconv.Itoa(r.Prompt)
	if r.Prompt == 0 {
		prompt = "unknown"
	}
	output := strconv.Itoa(r.Output)
	if r.Output == 0 && r.Phases.First == 0 && r.Outcome == "ok" {
		output = "unknown"
	}
	if r.Prompt == 0 && r.Output == 0 {
		return ""
	}
	return ", " + prompt + " prompt and " + output + " output tokens"
}

// tokens writes how many tokens were cached and moved.
func (r *Record) tokens(w io.Writer) {
	fmt.Fprintf(w, "\ncached tokens  best replica %s; chosen replica %s predicted, %s reported by the engine\n",
		known(r.Available), known(r.Captured), known(r.Delivered))
	if r.Prefill != "" {
		fmt.Fprintf(w, "moved tokens   %s of %s planned", known(r.Moved), known(r.Planned))
		if r.Unsure {
			fmt.Fprint(w, ", or cached before: the match of the decode replica is unknown")
		}
		fmt.Fprintln(w)
	}
}

// times writes the real and the predicted durations.
func (r *Record) times(w io.Writer) {
	p := r.Phases
	fmt.Fprintf(w, "time           tokenize %s, queue %s, plan %s, prefill %s%s, handoff %s%s\n",
		span(p.Tokenize), span(p.Queue), span(p.Plan), span(p.Prefill), r.turns(), span(p.Handoff), r.first())
}

// first writes the real and the predicted time to the first token. An answer that is not streamed comes as a
// whole, so its first token cannot be observed. There is no time if nothing came, or if the answer was
// passed on unread.
func (r *Record) first() string {
	predicted := ""
	if r.Decision != nil {
		predicted = "predicted " + span(r.Decision.TTFT)
	}
	after := span(r.Phases.First)
	switch {
	case r.Phases.First == 0 && predicted == "":
		return ""
	case r.Phases.First == 0:
		return ", TTFT not seen (" + predicted + ")"
	case r.Streamed != nil && !*r.Streamed && predicted == "":
		return ", whole answer after " + after + " (not streamed)"
	case r.Streamed != nil && !*r.Streamed:
		return ", whole answer after " + after + " (not streamed; first token " + predicted + ")"
	case predicted == "":
		return ", TTFT " + after
	}
	return ", TTFT " + after + " (" + predicted + ")"
}

// turns writes how a decode replica got a prompt that it computed itself.
func (r *Record) turns() string {
	var all []string
	switch {
	case r.Whole != "" && r.Pieces > 0:
		all = append(all, "in "+Count(r.Pieces, "piece"), "and the rest whole: "+r.Whole)
	case r.Pieces > 0:
		all = append(all, fmt.Sprintf("%d of %d pieces, the last is the request itself", r.Pieces, r.Pieces+1))
	case r.Whole != "":
		all = append(all, "sent whole: "+r.Whole)
	}
	if r.Phases.Turn >= 1 {
		all = append(all, span(r.Phases.Turn)+" of it waiting for other prompts at the replica")
	}
	if len(all) == 0 {
		return ""
	}
	return " (" + strings.Join(all, ", ") + ")"
}

// attempts lists the failed attempts.
func (r *Record) attempts(w io.Writer) {
	for i, a := range r.Failed {
		at := "no replica's fault"
		if a.At != "" {
			at = "at " + a.At
		}
		fmt.Fprintf(w, "attempt %d      %s: %s %s, status %d, %s, from %s on for %s\n",
			i+1, pair(a.Prefill, a.Decode), a.Phase, a.Kind, a.Status, at, span(a.Began), span(a.Took))
	}
}

// terms are the columns of the table, without the terms that are 0 in all plans.
func (d *decision) terms() []string {
	var all []string
	for term := range (scoring.Terms{}).All() {
		all = append(all, term)
	}
	return slices.DeleteFunc(all, func(term string) bool {
		return !slices.ContainsFunc(d.Plans, func(p plan) bool { return p.Terms[term] != 0 })
	})
}

// plans writes the table of compared plans: the chosen plan, and the others by their cost.
func (r *Record) plans(w io.Writer, other Weights) error {
	c, d := r.Config, r.Decision
	fmt.Fprintf(w, "configuration  %s: alpha %s, beta %g, gamma %g, decode_penalty %g\n",
		c.Revision, c.Alpha, c.Beta, c.Gamma, c.DecodePenalty)
	if d == nil || len(d.Plans) == 0 {
		_, err := fmt.Fprintln(w, "\nno plan was made, or the record does not have it")
		return err
	}
	slices.SortStableFunc(d.Plans[1:], func(a, b plan) int { return cmp.Compare(a.Total, b.Total) })
	var then []float64
	if !other.none() {
		var err error
		if then, err = r.Totals(other); err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "\n%s compared, %d as good as the best; %s, the chosen plan first, then by cost:\n",
		Count(d.Compared, "plan"), d.Ties, units(d.Units))
	if d.Rules != "" {
		fmt.Fprintf(w, "chosen by a policy and not by cost: %s\n", d.Rules)
	}
	r.table(w, then)
	if then != nil {
		r.verdict(w, other, then)
	}
	return nil
}

// table writes a row for each plan. then are the totals with other weights; nil for none.
func (r *Record) table(w io.Writer, then []float64) {
	d := r.Decision
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	terms := d.terms()
	links := slices.ContainsFunc(d.Plans, func(p plan) bool { return p.GBps > 0 })
	fmt.Fprintf(t, "plan\t%s\ttotal\t", strings.Join(terms, "\t"))
	if links {
		fmt.Fprint(t, "link GB/s\t")
	}
	if then != nil {
		fmt.Fprint(t, "then\t")
	}
	fmt.Fprintln(t)
	for i := range d.Plans {
		p := &d.Plans[i]
		fmt.Fprintf(t, "%s\t", p.name())
		for _, term := range terms {
			fmt.Fprintf(t, "%s\t", cell(p.Terms[term]))
		}
		fmt.Fprintf(t, "%.1f\t", p.Total)
		switch {
		case links && p.GBps > 0:
			fmt.Fprintf(t, "%.3g\t", p.GBps)
		case links:
			fmt.Fprint(t, "\t")
		}
		if then != nil {
			fmt.Fprintf(t, "%.1f\t", then[i])
		}
		fmt.Fprintln(t)
	}
	_ = t.Flush() // to a buffer
}

// verdict says what the other weights would have chosen.
func (r *Record) verdict(w io.Writer, other Weights, then []float64) {
	d := r.Decision
	tied := r.tied(then)
	best := tied[0]
	switch {
	case len(tied) > 1:
		var names []string
		for _, i := range tied {
			names = append(names, d.Plans[i].name())
		}
		fmt.Fprintf(w, "\nwith %v: as good: %s; one of them is drawn", other, strings.Join(names, ", "))
		if d.Compared > len(then) {
			fmt.Fprintf(w, "; %s stand in the record, others may be as good", Count(len(then), "plan"))
		}
		fmt.Fprintln(w)
	case best == 0:
		fmt.Fprintf(w, "\nwith %v: the same, %s\n", other, d.Plans[0].name())
	default:
		fmt.Fprintf(w, "\nwith %v: %s, ahead by %.1f; %s stand in the record, others may be better still\n",
			other, d.Plans[best].name(), then[0]-then[best], Count(len(then), "plan"))
	}
}

func units(u string) string {
	if u == "raw" {
		return "cost in the formula's own units"
	}
	return "cost in ms"
}

// cell returns a term as text, or a dash for 0.
func cell(v float64) string {
	if v == 0 {
		return "-"
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}

func known(tokens int) string {
	if tokens < 0 {
		return "unknown"
	}
	return strconv.Itoa(tokens)
}

// Count writes a number of things in words.
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// span writes a time in milliseconds with three digits.
func span(ms float64) string {
	switch {
	case ms == 0:
		return "0"
	case ms < 1e3:
		return strconv.FormatFloat(ms, 'g', 3, 64) + " ms"
	case ms < 60e3:
		return strconv.FormatFloat(ms/1e3, 'g', 3, 64) + " s"
	}
	return time.Duration(math.Round(ms/1e3) * 1e9).String()
}
