package config

import (
	"fmt"
	"net/textproto"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// defaultClass names the class of the requests for which nothing chooses a class. The file need not define
// this class.
const defaultClass = "default"

// Goal is a duration that requests should keep. The file cannot have 0, which no request keeps; without a
// goal the value is 0.
type Goal time.Duration

// MarshalText writes [Goal.String].
func (g Goal) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

func (g Goal) String() string { return time.Duration(g).String() }

// Refusal is after how long a first token is too late. 0 is by the goals of the class; the file cannot have
// it. The file has [Never] as "never".
type Refusal time.Duration

// Never refuses no request as too late.
const Never = Refusal(-1)

// MarshalText writes [Refusal.String].
func (r Refusal) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

func (r Refusal) String() string {
	if r == Never {
		return "never"
	}
	return time.Duration(r).String()
}

// Class is a kind of requests with goals of its own. A goal of 0 is none.
type Class struct {
	Name     string `yaml:"name"`               // in logs, records, metrics and traces
	Rank     int    `yaml:"rank"`               // the smallest comes first; 0: the place in the list, from 1
	TTFT     Goal   `yaml:"ttft,omitempty"`     // until the first token
	TPOT     Goal   `yaml:"tpot,omitempty"`     // from token to token
	Deadline Goal   `yaml:"deadline,omitempty"` // until the last token
	// A request with a later predicted first token is refused with 429.
	Refuse Refusal `yaml:"refuse,omitempty"`
	Match  Match   `yaml:"match"` // requests of the class, whatever the class of their key
}

// Match has conditions for requests. All conditions that are set must hold.
type Match struct {
	Keys   []string    `yaml:"keys"`   // names of client keys
	Models []string    `yaml:"models"` // names of models
	Paths  []string    `yaml:"paths"`  // of the API, as /v1/chat/completions
	Header HeaderValue `yaml:"header"`
}

// HeaderValue is a header of a client's request and its whole value.
type HeaderValue struct {
	Name  string `yaml:"name"`
	Value string `yaml:"value"`
}

// goal is one goal of a class, with the name of its field.
type goal struct {
	field string
	value Goal
}

func (c *Class) goals() [3]goal {
	return [...]goal{{"ttft", c.TTFT}, {"tpot", c.TPOT}, {"deadline", c.Deadline}}
}

// shown is the class as text for people.
func (c Class) shown() string {
	var text []string
	for _, g := range c.goals() {
		if g.value > 0 {
			text = append(text, g.field+" "+g.value.String())
		}
	}
	if len(text) == 0 {
		text = []string{"no goals"}
	}
	if c.Refuse != 0 {
		text = append(text, "refuse "+c.Refuse.String())
	}
	return strings.Join(text, ", ")
}

// shortestGoal is a time within which nothing happens in a fleet.
const shortestGoal = Goal(time.Millisecond)

// mostRank bounds ranks.
const mostRank = 1_000_000

// checkClasses checks what does not need the key file. See [checkClassKeys].
func checkClasses(ck *checker, list []Class) {
	first := map[string]string{}
	for i := range list {
		c, field := &list[i], fmt.Sprintf("classes[%d]", i)
		if !nameOfKey.MatchString(c.Name) {
			ck.add(field+".name", "is no name of a class", nameFix)
		}
		if before := first[c.Name]; before != "" {
			ck.add(field+".name", fmt.Sprintf("is the second class with the name %s, after %s", c.Name, before),
				"rename one of them")
		}
		first[c.Name] = field
		ck.between(field+".rank", c.Rank, 0, mostRank)
		for _, g := range c.goals() {
			if g.value != 0 && g.value < shortestGoal {
				ck.add(field+"."+g.field, fmt.Sprintf("is %v, which no request can keep", g.value),
					fmt.Sprintf("give at least %v, or leave the goal out", shortestGoal))
			}
		}
		if c.Deadline > 0 && c.Deadline < c.TTFT {
			ck.add(field+".deadline",
				fmt.Sprintf("is %v, before the first token is due (ttft: %v)", c.Deadline, c.TTFT),
				"make it longer than ttft")
		}
		c.Refuse.check(ck, c, field+".refuse")
		c.Match.check(ck, field+".match")
	}
}

// check wants that no request is refused that could keep the goals of its class.
func (r Refusal) check(ck *checker, c *Class, field string) {
	switch {
	case r == 0, r == Never:
	case r < Refusal(max(c.TTFT, shortestGoal)): // and below 0
		ck.add(field, fmt.Sprintf("is %v, within the goal for the first token (ttft: %v)", r, c.TTFT),
			"make it longer than ttft, or write never")
	case c.Deadline > 0 && r > Refusal(c.Deadline):
		ck.add(field, fmt.Sprintf("is %v, after the last token is due (deadline: %v)", r, c.Deadline),
			"make it shorter than deadline, or write never")
	}
}

func (m *Match) check(ck *checker, field string) {
	for _, l := range []struct {
		field string
		list  []string
	}{{"keys", m.Keys}, {"models", m.Models}, {"paths", m.Paths}} {
		if slices.Contains(l.list, "") {
			ck.add(field+"."+l.field, "has an empty element", "write it or leave the line out")
		}
	}
	for i, path := range m.Paths {
		if path != "" && !strings.HasPrefix(path, "/") {
			ck.add(fmt.Sprintf("%s.paths[%d]", field, i), "does not begin with a slash",
				"write it as /v1/chat/completions")
		}
	}
	h := &m.Header
	if (h.Name == "") != (h.Value == "") {
		ck.add(field+".header", "has a name or a value alone", "write both, as {name: x-tier, value: batch}")
	}
	if strings.ContainsFunc(h.Name, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ':' }) {
		ck.add(field+".header.name", "is no name of a header", "write it as x-tier")
	}
}

// checkClassKeys wants that classes and keys, those of the key file included, name each other rightly.
func checkClassKeys(ck *checker, c *Config) {
	known := []string{defaultClass}
	for i := range c.Classes {
		known = append(known, c.Classes[i].Name)
	}
	names := map[string]bool{}
	for i, k := range c.ClientKeys() {
		names[k.Name] = true
		checkKeyClass(ck, keyProblem(c, i, &k, "class"), []string{k.Class}, known)
		checkKeyClass(ck, keyProblem(c, i, &k, "classes"), k.Classes, known)
	}
	for i := range c.Classes {
		for n, name := range c.Classes[i].Match.Keys {
			if name != "" && !names[name] {
				ck.add(fmt.Sprintf("classes[%d].match.keys[%d]", i, n), fmt.Sprintf("there is no key %q", name),
					"write the name of a key of keys or keys_file")
			}
		}
	}
}

// checkKeyClass wants that the classes in a field of a key are known. at is the place of the field.
func checkKeyClass(ck *checker, at Problem, list, known []string) {
	for _, class := range list {
		if class == "" || slices.Contains(known, class) {
			continue
		}
		at.Message, at.Fix = fmt.Sprintf("there is no class %q", class), didYouMean(class, known)
		if len(known) == 1 {
			at.Fix = "write the class under classes"
		}
		ck.problems = append(ck.problems, at)
	}
}

// fillClasses writes the names of headers as the router looks for them.
func fillClasses(list []Class) {
	for i := range list {
		h := &list[i].Match.Header
		h.Name = textproto.CanonicalMIMEHeaderKey(h.Name)
	}
}

// goal reads a duration that is not 0; of a [Refusal] also never.
func (d *decoder) goal(n ast.Node, dst reflect.Value, field string) {
	message, fix := "is 0, which no request can keep", "leave the goal out, or give at least 1ms"
	if dst.Type() == reflect.TypeFor[Refusal]() {
		message, fix = "would refuse every request", "write never, or leave it out: then the goals decide"
		if text, ok := textOf(n); ok && text == Never.String() {
			dst.SetInt(int64(Never))
			return
		}
	}
	before := len(d.problems)
	d.duration(n, dst, field)
	if v := dst.Int(); len(d.problems) == before && (v == 0 || v == int64(Never)) {
		d.problem(position(n), field, message, fix)
	}
}
