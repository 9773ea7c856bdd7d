package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Condition is how a replica or a pair is, as the page and the terminal say it.
type Condition struct {
	Text string   `json:"text"`
	Bad  Severity `json:"bad"`
}

// Severity is how bad a [Condition] is.
type Severity int

// From well to out.
const (
	Well    Severity = iota
	Notable          // something to know
	Out              // nothing is sent there
)

// conditionOf says how r is.
func conditionOf(r *Replica) Condition {
	switch drained := r.drained(); {
	case drained && !r.Up:
		return Condition{"drained: " + cmp.Or(r.Reason, "not usable"), Out}
	case !r.Up:
		return Condition{cmp.Or(r.Reason, "not usable"), Out}
	}
	bad := Well
	var states []string
	for _, s := range r.States {
		states = append(states, strings.ReplaceAll(s.State, "_", " ")+": "+s.Cause)
		if s.State != "pool_idle" { // which its replicas are well in
			bad = max(bad, Notable)
		}
		if strings.HasPrefix(s.State, "ejected") || s.State == "distrusted" || s.State == "unpaired" ||
			s.State == "draining" || s.State == "drained" {
			bad = Out
		}
	}
	switch {
	case len(states) > 0:
		return Condition{strings.Join(states, "; "), bad}
	case r.Index != "" && r.Index != "live":
		return Condition{"index " + r.Index, Notable}
	case r.CutsPrompts:
		return Condition{"in use, gets prompts whole: it cuts them itself", Well}
	}
	return Condition{"in use", Well}
}

// drained reports whether r has been drained.
func (r *Replica) drained() bool {
	return slices.ContainsFunc(r.States, func(s State) bool { return s.State == "drained" })
}

// conditionOfPair says how p is.
func conditionOfPair(p *Pair) Condition {
	if p.State != "" && p.State != "in use" {
		return Condition{p.State + ": " + p.Cause, Out}
	}
	return Condition{"in use", Well}
}

// Headline says how many replicas get requests, and the names of the first few that do not.
func (l *Live) Headline() string {
	const most = 3
	text := fmt.Sprintf("%d of %d usable", l.Usable, len(l.Replicas))
	if len(l.Out) > 0 {
		text += ": " + strings.Join(l.Out[:min(most, len(l.Out))], ", ")
	}
	if more := len(l.Out) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Judge fills in the conditions of all replicas and pairs by what else is known of them, and who is usable.
func (l *Live) Judge() {
	l.Usable, l.Out = 0, nil
	for i := range l.Replicas {
		r := &l.Replicas[i]
		if r.Condition = conditionOf(r); r.Condition.Bad == Out {
			l.Out = append(l.Out, r.Name)
		} else {
			l.Usable++
		}
	}
	for i := range l.Pairs {
		l.Pairs[i].Condition = conditionOfPair(&l.Pairs[i])
	}
}
