package page

import (
	"cmp"
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
	bad := Notable
	var states []string
	for _, s := range r.States {
		states = append(states, strings.ReplaceAll(s.State, "_", " ")+": "+s.Cause)
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

// Judge fills in the conditions of all replicas and pairs by what else is known of them.
func (l *Live) Judge() {
	for i := range l.Replicas {
		l.Replicas[i].Condition = conditionOf(&l.Replicas[i])
	}
	for i := range l.Pairs {
		l.Pairs[i].Condition = conditionOfPair(&l.Pairs[i])
	}
}
