package policies

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Param is a parameter of a policy: "dynamo:credit=1.5" is the policy dynamo with another credit.
type Param struct {
	Name  string
	Value *float64
	Brief string    // meaning and unit
	Try   []float64 // values that tuning tries, the authors' value included; nil: not tuned
}

// tunable is something with parameters, the main one first.
type tunable interface {
	params() []Param
}

// set applies settings such as "credit=1.5:local=0".
func set(t any, settings string) error {
	if settings == "" {
		return nil
	}
	var all []Param
	if x, ok := t.(tunable); ok {
		all = x.params()
	}
	for text := range strings.SplitSeq(settings, ":") {
		name, value, ok := strings.Cut(text, "=")
		at := slices.IndexFunc(all, func(p Param) bool { return p.Name == name })
		if !ok || at < 0 {
			return fmt.Errorf("no parameter %q: %s", text, known(all))
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil || v != v {
			return fmt.Errorf("parameter %s: %q is no number", name, value)
		}
		*all[at].Value = v
	}
	return nil
}

// known lists the parameters for an error message.
func known(all []Param) string {
	if len(all) == 0 {
		return "it has none"
	}
	var names []string
	for _, p := range all {
		names = append(names, fmt.Sprintf("%s=%g (%s)", p.Name, *p.Value, p.Brief))
	}
	return "it has " + strings.Join(names, ", ")
}

// Params lists the parameters of a policy with the values that its name gives them, the main one first.
func Params(name string) ([]Param, error) {
	name, _ = cutLocal(name)
	base, settings, _ := strings.Cut(name, ":")
	t, err := find(base)
	if err != nil {
		return nil, err
	}
	if err := set(t, settings); err != nil {
		return nil, fmt.Errorf("policy %s: %w", base, err)
	}
	if x, ok := t.(tunable); ok {
		return x.params(), nil
	}
	return nil, nil
}

// Grid lists the forms of a policy that tuning compares: one for each value of its main parameter. A policy
// without a tuned parameter has one form.
func Grid(name string) ([]string, error) {
	all, err := Params(name)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 || len(all[0].Try) == 0 {
		return []string{name}, nil
	}
	name, rule := cutLocal(name)
	var grid []string
	for _, v := range all[0].Try {
		form := name
		if v != *all[0].Value {
			form = fmt.Sprintf("%s:%s=%g", name, all[0].Name, v)
		}
		grid = append(grid, form+rule)
	}
	return grid, nil
}

// Best returns the form of a policy with the least loss, and the loss. Among equal forms it takes the
// authors' form.
func Best(name string, loss func(form string) (float64, error)) (best string, least float64, err error) {
	grid, err := Grid(name)
	if err != nil {
		return "", 0, err
	}
	for _, form := range grid {
		x, err := loss(form)
		if err != nil {
			return "", 0, fmt.Errorf("tuning: %w", err)
		}
		if best == "" || x < least || x == least && form == name {
			best, least = form, x
		}
	}
	return best, least, nil
}
