// Package classes sorts requests into classes with goals.
package classes

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

// Rest names the class of the requests for which nothing chooses a class. If the configuration does not have
// this class, the class has no goals, and its rank comes behind all other ranks.
const Rest = "default"

// Goals are the times that a request should keep. A goal of 0 is none.
type Goals struct {
	TTFT     time.Duration // from the request's arrival until its first token
	TPOT     time.Duration // mean time from token to token
	Deadline time.Duration // from the request's arrival until its last token
}

// Kept is what [Goals.Judge] says of an answer that kept all goals.
const Kept = "kept"

// Judge returns [Kept], or the first goal that an answer missed, or "" if no goal can be judged. first is the
// time until the first token of a stream, 0 if the answer was not streamed. Such an answer may take as long
// as its TTFT and its TPOT allow together.
func (g Goals) Judge(first, total time.Duration, tokens int) string {
	pace := g.TPOT * time.Duration(max(tokens-1, 0))
	switch {
	case first > 0 && g.TTFT > 0 && first > g.TTFT:
		return "ttft"
	case first > 0 && g.TPOT > 0 && total-first > pace,
		first == 0 && g.TTFT > 0 && g.TPOT > 0 && total > g.TTFT+pace:
		return "tpot"
	case g.Deadline > 0 && total > g.Deadline:
		return "deadline"
	case first > 0 && g.TTFT+g.TPOT > 0, g.TTFT > 0 && g.TPOT > 0, g.Deadline > 0:
		return Kept
	}
	return ""
}

// TooLate is how many times its goal a first token may take before it is too late, where the class does not
// say after how long.
const TooLate = 3

// Never is the [Class.Refuse] of a class whose requests are never too late.
const Never time.Duration = -1

// Class is a kind of requests. Immutable.
type Class struct {
	Name  string
	Rank  int // the smallest comes first
	Goals Goals
	// From a request's arrival until a first token is too late, so that the request is refused; 0: as the
	// goals say, or [Never].
	Refuse time.Duration
	Match  Match
}

// FirstBy returns after how long the first token of a request with goals is too late; 0 for never. usual
// holds for requests without a class, and bounds what the goals say, but not what the class says. A first
// token that keeps its goal is never too late.
func (c *Class) FirstBy(goals Goals, usual time.Duration) time.Duration {
	switch {
	case c == nil:
		return usual
	case c.Refuse == Never:
		return 0
	case c.Refuse > 0:
		return max(c.Refuse, goals.TTFT)
	}
	by := usual
	for _, late := range []time.Duration{TooLate * goals.TTFT, goals.Deadline} {
		if late > 0 && (by == 0 || late < by) {
			by = late
		}
	}
	return by
}

// Match chooses the requests of a class. A condition that is not set holds for every request. A Match
// without conditions chooses no request.
type Match struct {
	Keys, Models, Paths []string
	Header, Value       string // a header with exactly this value
}

// Client is what the operator allows the client of a request.
type Client struct {
	Key   string // name of the client's key
	Known bool   // the client showed a key; false only if the router has no keys
	Class string // class of the key; "" for none
	May   []string
}

// Request is what a class is chosen by. Header returns the first value of a header of the client, "" for
// none. It is asked for names in canonical form, so that net/http need not make them.
type Request struct {
	Client      Client
	Model, Path string
	Tier        string // service_tier of its body
	Priority    int    // below 0: more urgent than usual; above 0: less
	Header      func(name string) string
}

// Table has the classes of a configuration. A nil table has none. Immutable, so safe for concurrent use.
type Table struct {
	list  []Class // in the order of the file
	other *Class  // of the requests that nothing else chooses
}

// NewTable makes a table of list, whose names differ; nil for an empty list. A class without a rank has its
// place in the list as rank: the first is 1.
func NewTable(list []Class) *Table {
	if len(list) == 0 {
		return nil
	}
	t := &Table{list: slices.Clone(list)}
	last := 0
	for i := range t.list {
		c := &t.list[i]
		if c.Rank == 0 {
			c.Rank = i + 1
		}
		last = max(last, c.Rank)
	}
	if t.other = t.named(Rest); t.other == nil { // so far, t has no class for unknown names
		t.other = &Class{Name: Rest, Rank: last + 1}
	}
	return t
}

// Names returns the names of all classes.
func (t *Table) Names() (names []string) {
	if t == nil {
		return nil
	}
	for i := range t.list {
		names = append(names, t.list[i].Name)
	}
	if !slices.Contains(names, Rest) {
		names = append(names, Rest)
	}
	return names
}

// named returns the class with a name, or else that of the requests that nothing else chooses.
func (t *Table) named(name string) *Class {
	for i := range t.list {
		if t.list[i].Name == name {
			return &t.list[i]
		}
	}
	return t.other
}

// Of returns the class of a request: the class that the client asks for and may use, else the first class
// that matches, else the class of the key, else [Rest]. Unless the client asks for a class by its name, a
// priority moves the request by so many classes, among the classes that the client may use. The goals are the
// goals of the class, or longer goals if the client asks for longer goals. A nil table returns nil and no
// goals.
func (t *Table) Of(r *Request) (*Class, Goals) {
	if t == nil {
		return nil, Goals{}
	}
	c := t.choose(r)
	if len(r.Client.May) == 0 {
		return c, c.Goals
	}
	g := c.Goals
	g.TTFT = longer(g.TTFT, r.Header("X-Llm-D-Slo-Ttft-Ms"))
	g.TPOT = longer(g.TPOT, r.Header("X-Llm-D-Slo-Tpot-Ms"))
	if g.Deadline > 0 {
		g.Deadline = max(g.Deadline, g.TTFT)
	}
	return c, g
}

func (t *Table) choose(r *Request) *Class {
	for _, name := range []string{r.Header("X-Llm-D-Inference-Objective"), r.Tier} {
		if name != "" && slices.Contains(r.Client.May, name) {
			return t.named(name)
		}
	}
	for i := range t.list {
		if t.list[i].matches(r) {
			return t.moved(&t.list[i], r)
		}
	}
	return t.moved(t.named(r.Client.Class), r)
}

// moved returns the class that is as many classes after c as the priority of a request says, or before c
// where it is below 0.
func (t *Table) moved(c *Class, r *Request) *Class {
	sign := cmp.Compare(r.Priority, 0)
	for left := r.Priority; left != 0; left -= sign {
		next := c
		for _, name := range r.Client.May {
			far := sign * (t.named(name).Rank - c.Rank)
			if far > 0 && (next == c || far < sign*(next.Rank-c.Rank)) {
				next = t.named(name)
			}
		}
		if next == c {
			break
		}
		c = next
	}
	return c
}

// matches reports whether all conditions hold. Clients choose their headers, so a header counts only for a
// key that may ask for the class, or that the class names.
func (c *Class) matches(r *Request) bool {
	m := &c.Match
	if len(m.Keys)+len(m.Models)+len(m.Paths) == 0 && m.Header == "" {
		return false
	}
	holds := func(want []string, got string) bool { return len(want) == 0 || slices.Contains(want, got) }
	if !holds(m.Keys, r.Client.Key) || !holds(m.Models, r.Model) || !holds(m.Paths, r.Path) {
		return false
	}
	if m.Header == "" {
		return true
	}
	by := &r.Client
	may := !by.Known || len(m.Keys) > 0 || by.Class == c.Name || slices.Contains(by.May, c.Name)
	return may && r.Header(m.Header) == m.Value
}

// mostGoal bounds the goals that clients ask for.
const mostGoal = 24 * time.Hour

// longer returns the goal of a class, or the goal that a client asks for, in milliseconds, if the latter is
// longer.
func longer(goal time.Duration, asked string) time.Duration {
	if goal == 0 || asked == "" || len(asked) > 20 {
		return goal
	}
	ms, err := strconv.ParseFloat(asked, 64)
	if err != nil || !(ms > 0 && ms < float64(mostGoal/time.Millisecond)) {
		return goal
	}
	return max(goal, time.Duration(ms*float64(time.Millisecond)))
}
