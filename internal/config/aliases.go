package config

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Alias is a name that clients may use instead of the name of a model. The requests for the alias go to the
// models of To, in the shares that the weights say.
type Alias struct {
	Name     string   `yaml:"name"`
	To       []Target `yaml:"to"`
	Fallback string   `yaml:"fallback"` // the model for requests whose model cannot be used; empty: none
}

// Target is a model behind an alias. In the file a plain string is short for {model: string}.
type Target struct {
	Model  string `yaml:"model"`  // as engines serve it
	Weight int    `yaml:"weight"` // share of the requests, relative to the other weights; 1 if not given
}

// String is the target as people write it.
func (t Target) String() string { return fmt.Sprintf("%s (weight %d)", t.Model, t.Weight) }

// String says where the alias leads.
func (a Alias) String() string {
	targets := make([]string, len(a.To))
	for i, t := range a.To {
		targets[i] = t.String()
	}
	text := strings.Join(targets, ", ")
	if a.Fallback != "" {
		text += ", fallback " + a.Fallback
	}
	return text
}

// Models returns every model that requests of the alias may go to: the targets with a weight, in the order of
// the file, and the fallback.
func (a *Alias) Models() []string {
	var models []string
	for _, t := range a.To {
		if t.Weight > 0 {
			models = append(models, t.Model)
		}
	}
	if a.Fallback != "" && !slices.Contains(models, a.Fallback) {
		models = append(models, a.Fallback)
	}
	return models
}

// mostWeight bounds a weight.
const mostWeight = 1_000_000

// longestModel bounds the name of a model or an alias.
const longestModel = 256

// checkAliases checks each alias, and that no alias leads to another one.
func checkAliases(ck *checker, c *Config) {
	first := map[string]string{}
	for i := range c.Aliases {
		a, field := &c.Aliases[i], fmt.Sprintf("aliases[%d]", i)
		if before := first[a.Name]; before != "" {
			ck.add(field+".name", fmt.Sprintf("%q is the name of %s too", a.Name, before), "join the two entries")
			continue
		}
		first[a.Name] = field
	}
	for i := range c.Aliases {
		c.Aliases[i].check(ck, fmt.Sprintf("aliases[%d]", i), first)
	}
	for _, list := range []struct {
		field string
		of    []Replica
	}{
		{"pools.prefill.replicas", c.Pools.Prefill.Replicas},
		{"pools.decode.replicas", c.Pools.Decode.Replicas},
		{"discovery.dns.prefill", c.Discovery.DNS.Prefill},
		{"discovery.dns.decode", c.Discovery.DNS.Decode},
	} {
		for i, r := range list.of {
			if at := first[r.Model]; r.Model != "" && at != "" {
				ck.add(fmt.Sprintf("%s[%d].model", list.field, i),
					fmt.Sprintf("%q is the name of %s too", r.Model, at), "give the alias another name")
			}
		}
	}
}

// check checks an alias. names has the names of all aliases, and where each stands.
func (a *Alias) check(ck *checker, field string, names map[string]string) {
	checkModel(ck, field+".name", a.Name)
	target := func(field, model string) {
		checkModel(ck, field, model)
		if at := names[model]; at != "" {
			ck.add(field, fmt.Sprintf("%q is an alias itself (%s)", model, at),
				"name a model as the engines serve it (GET /v1/models of an engine)")
		}
	}
	sum, seen := 0, map[string]bool{}
	for i, t := range a.To {
		at := fmt.Sprintf("%s.to[%d]", field, i)
		target(at+".model", t.Model)
		if ck.between(at+".weight", t.Weight, 0, mostWeight); seen[t.Model] {
			ck.add(at+".model", fmt.Sprintf("%q stands here already", t.Model), "add the weights up in one entry")
		}
		seen[t.Model] = true
		sum += max(t.Weight, 0)
	}
	switch {
	case len(a.To) == 0:
		ck.add(field+".to", "names no model", "write to: [MODEL], or models with weights")
	case sum == 0:
		ck.add(field+".to", "has weights that sum to nothing",
			"give a model a weight above 0, or write to: [MODEL]")
	}
	if a.Fallback != "" {
		target(field+".fallback", a.Fallback)
	}
}

// checkModel wants a name of a model, or of an alias.
func checkModel(ck *checker, field, name string) {
	if name == "" || len(name) > longestModel || strings.ContainsFunc(name, unicode.IsControl) {
		ck.add(field, "is no name of a model",
			fmt.Sprintf("write 1 to %d bytes without control characters", longestModel))
	}
}
