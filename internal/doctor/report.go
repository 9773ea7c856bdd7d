package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// JSON writes the report as one indented object; durations are nanoseconds.
func (r *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

const (
	wide   = 120 // columns of text
	indent = 12  // indent below a finding
)

// Text writes the report for people. A failure or a warning has the evidence, why it matters and what to do.
// Good checks have a line each if all is set, and otherwise a line for each subject.
func (r *Report) Text(w io.Writer, all bool) error {
	var b strings.Builder
	for i, subject := range r.subjects() {
		if i > 0 {
			b.WriteByte('\n')
		}
		r.section(&b, subject, all)
	}
	fmt.Fprintf(&b, "\n%s", r.summary())
	if !all && r.Count.OK > 0 {
		b.WriteString("--verbose shows what was seen at each check\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// subjects returns the subjects in the order of their findings.
func (r *Report) subjects() []string {
	var all []string
	for _, f := range r.Findings {
		all = note(all, f.Subject, len(r.Findings))
	}
	return all
}

func (r *Report) section(b *strings.Builder, subject string, all bool) {
	fmt.Fprintln(b, r.heading(subject))
	skipped := map[string][]string{} // by reason
	var reasons []string
	well := 0 // good findings without their own line
	for _, f := range r.Findings {
		switch {
		case f.Subject != subject:
		case f.Status == OK && !all && f.Check != handoffSlow: // speeds that deserve a look
			well++
		case f.Status == Skipped:
			reasons = note(reasons, f.Seen, len(r.Findings))
			skipped[f.Seen] = append(skipped[f.Seen], f.Check)
		default:
			f.write(b)
		}
	}
	if well > 0 {
		wrap(b, "  ok        ", plural(well, "check"))
	}
	for _, why := range reasons {
		wrap(b, "  -         ", "not checked: "+strings.Join(skipped[why], ", ")+" ("+why+")")
	}
}

func (r *Report) heading(subject string) string {
	for _, e := range r.Engines {
		if e.Name != subject {
			continue
		}
		text := subject + "  " + e.URL
		if e.Version != "" {
			text += "  vLLM " + e.Version
		}
		if e.Model != "" {
			text += "  " + e.Model
		}
		return text
	}
	return subject
}

func (f *Finding) write(b *strings.Builder) {
	switch f.Status {
	case OK:
		wrap(b, "  ok        ", f.Title+": "+f.Seen)
		return
	case Warning:
		wrap(b, "  warning   ", f.Title+"  ["+f.Check+"]")
	default:
		wrap(b, "  FAILED    ", f.Title+"  ["+f.Check+"]")
	}
	pad := strings.Repeat(" ", indent)
	wrap(b, pad+"seen  ", f.Seen)
	wrap(b, pad+"why   ", f.Why)
	wrap(b, pad+"do    ", f.Do)
}

// wrap writes text after first, and continues on lines below. Words are not broken.
func wrap(b *strings.Builder, first, text string) {
	pad := strings.Repeat(" ", len(first))
	b.WriteString(first)
	column := len(first)
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case column+1+len(word) > wide:
			b.WriteString("\n" + pad)
			column = len(pad)
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	b.WriteByte('\n')
}

func (r *Report) summary() string {
	text := fmt.Sprintf("%d ok, %s, %d failed, %d not checked, in %v\n", r.Count.OK,
		plural(r.Count.Warnings, "warning"), r.Count.Failed, r.Count.Skipped, short(r.Took))
	if r.TimeUp {
		text += "the time was up before all was seen: give it more with --timeout\n"
	}
	return text
}
