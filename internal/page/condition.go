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
	Notable          // something to know, or it serves less than it could
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
		if r.isOutBy(s.State) {
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

// isOutBy reports whether r gets no requests in this state. A decode replica that makes no pair computes
// prompts itself.
func (r *Replica) isOutBy(state string) bool {
	return strings.HasPrefix(state, "ejected") || state == "draining" || state == "drained" ||
		state == "unpaired" && r.Pool == "prefill"
}

// limits are the states of a replica that gets requests and serves less than it could.
var limits = []string{
	"slow", "distrusted", "unpaired", "adapter_differs",
	"half_open_prefill", "half_open_decode", "half_open_whole",
}

// limited reports whether r is in one of the limits.
func (r *Replica) limited() bool {
	return slices.ContainsFunc(r.States, func(s State) bool { return slices.Contains(limits, s.State) })
}

// conditionOfPair says how p is.
func conditionOfPair(p *Pair) Condition {
	if p.State != "" && p.State != "in use" {
		return Condition{p.State + ": " + p.Cause, Out}
	}
	return Condition{"in use", Well}
}

// Headline says how many replicas get requests. It names the first few replicas that get none, and the first
// few that serve less than they could.
func (l *Live) Headline() string {
	text := fmt.Sprintf("%d of %d usable", l.Usable, len(l.Replicas))
	then := ", "
	if len(l.Out) > 0 {
		text += ": " + firstFew(l.Out)
		then = "; "
	}
	if len(l.Limited) > 0 {
		text += fmt.Sprintf("%s%d limited: %s", then, len(l.Limited), firstFew(l.Limited))
	}
	return text
}

// firstFew joins the first three names, and counts the others.
func firstFew(names []string) string {
	const most = 3
	text := strings.Join(names[:min(most, len(names))], ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Judge fills in the conditions of all replicas and pairs from the other facts about them, and which are
// usable.
func (l *Live) Judge() {
	l.Usable = 0
	l.Out, l.Limited = nil, nil
	for i := range l.Replicas {
		r := &l.Replicas[i]
		if r.Condition = conditionOf(r); r.Condition.Bad == Out {
			l.Out = append(l.Out, r.Name)
			continue
		}
		l.Usable++
		if r.limited() {
			l.Limited = append(l.Limited, r.Name)
		}
	}
	for i := range l.Pairs {
		l.Pairs[i].Condition = conditionOfPair(&l.Pairs[i])
	}
}
