package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// What [Change.Effect] may be.
const (
	AtOnce       = "applies at once"
	NeedsRestart = "needs restart"
	Started      = "in force since the start" // back to what a process runs with
)

// Change is one field that differs between two configurations. Secrets are shown by their source, never by
// their text.
type Change struct {
	Field    string // path; a replica is pools.prefill.replicas[its name]
	Old, New string // "" where there is none
	Effect   string // AtOnce, NeedsRestart or Started
}

func (c Change) String() string {
	switch {
	case c.Old == "":
		return fmt.Sprintf("%s: + %s (%s)", c.Field, c.New, c.Effect)
	case c.New == "":
		return fmt.Sprintf("%s: - %s (%s)", c.Field, c.Old, c.Effect)
	}
	return fmt.Sprintf("%s: %s -> %s (%s)", c.Field, c.Old, c.New, c.Effect)
}

// restart lists the fields that are read once, at the start; everything below them too.
var restart = []string{
	"listen", "admin.listen", "limits.header_bytes", "timeouts.read_header", "timeouts.idle", // the listeners
	"pools.prefill.index_bytes", "pools.decode.index_bytes", // an index does not move to another one
	"tracing", "log.format",
}

// Effect returns what makes a change of field take effect. A change that begins or ends TLS needs a restart,
// too: see [Diff].
func Effect(field string) string {
	for _, f := range restart {
		if field == f || strings.HasPrefix(field, f+".") {
			return NeedsRestart
		}
	}
	return AtOnce
}

// Diff lists what differs in b, in the order of the file. Replicas are the same when their names are.
func Diff(a, b *Config) []Change {
	var d differ
	d.object("", reflect.ValueOf(*a), reflect.ValueOf(*b))
	d.keyFile(a, b)
	for i := range d.changes {
		if c := &d.changes[i]; strings.HasPrefix(c.Field, "tls.") && a.TLS.Enabled() != b.TLS.Enabled() {
			c.Effect = NeedsRestart // a listener speaks TLS or does not
		}
	}
	return d.changes
}

type differ struct{ changes []Change }

func (d *differ) add(field, before, after string) {
	d.changes = append(d.changes, Change{Field: field, Old: before, New: after, Effect: Effect(field)})
}

func (d *differ) object(field string, a, b reflect.Value) {
	for k, f := range fieldsOf(a.Type()) {
		d.value(join(field, k), a.FieldByIndex(f.Index), b.FieldByIndex(f.Index))
	}
}

func (d *differ) value(field string, a, b reflect.Value) {
	switch old := a.Interface().(type) {
	case []Replica:
		named(d, field, old, b.Interface().([]Replica), Replica.ID, func(r Replica) string { return r.URL })
	case []Key:
		named(d, field, old, b.Interface().([]Key), func(k Key) string { return k.Name }, Key.source)
	case []Class:
		named(d, field, old, b.Interface().([]Class), func(c Class) string { return c.Name }, Class.shown)
	case []Alias:
		named(d, field, old, b.Interface().([]Alias), func(a Alias) string { return a.Name }, Alias.String)
	case []Target:
		named(d, field, old, b.Interface().([]Target), func(t Target) string { return t.Model }, Target.String)
	case []ScoringModel:
		named(d, field, old, b.Interface().([]ScoringModel), func(m ScoringModel) string { return m.Model },
			ScoringModel.String)
	case []string:
		d.texts(field, old, b.Interface().([]string))
	case []Secret:
		d.secrets(field, old, b.Interface().([]Secret))
	case Secret:
		d.secrets(field, []Secret{old}, []Secret{b.Interface().(Secret)})
	case Alpha:
		d.leaf(field, a, b)
	default:
		if a.Kind() == reflect.Struct {
			d.object(field, a, b)
			return
		}
		d.leaf(field, a, b)
	}
}

func (d *differ) leaf(field string, a, b reflect.Value) {
	if !a.Equal(b) {
		d.add(field, show(a), show(b))
	}
}

func show(v reflect.Value) string {
	if s := fmt.Sprint(v.Interface()); s != "" {
		return s
	}
	return `""`
}

// secrets compares lists as a whole, and does not reveal which of several keys has changed.
func (d *differ) secrets(field string, a, b []Secret) {
	if slices.Equal(a, b) {
		return
	}
	before, after := sources(a), sources(b)
	if before == after {
		after += " with another content"
	}
	d.add(field, before, after)
}

func sources(list []Secret) string {
	names := make([]string, len(list))
	for i, s := range list {
		names[i] = s.String()
	}
	if all := strings.Join(names, ", "); all != "" {
		return all
	}
	return "none"
}

// keyFile compares the contents of the same key file as a whole.
func (d *differ) keyFile(a, b *Config) {
	same := slices.EqualFunc(a.FileKeys, b.FileKeys, func(x, y Key) bool { return reflect.DeepEqual(x, y) })
	if a.KeysFile == b.KeysFile && !same {
		now := fmt.Sprintf("%d keys, not the same", len(b.FileKeys))
		d.add("keys_file", fmt.Sprintf("%d keys", len(a.FileKeys)), now)
	}
}

// texts compares lists in which the order means nothing.
func (d *differ) texts(field string, a, b []string) {
	for _, old := range a {
		if !slices.Contains(b, old) {
			d.add(fmt.Sprintf("%s[%s]", field, old), old, "")
		}
	}
	for _, text := range b {
		if !slices.Contains(a, text) {
			d.add(fmt.Sprintf("%s[%s]", field, text), "", text)
		}
	}
}

// named compares lists whose elements have names, of which the first of a name counts. shown is an element as
// text.
func named[T any](d *differ, field string, a, b []T, name, shown func(T) string) {
	before, after := byName(a, name), byName(b, name)
	path := func(e T) string { return fmt.Sprintf("%s[%s]", field, name(e)) }
	for _, old := range a {
		now, ok := after[name(old)]
		switch {
		case !ok:
			d.add(path(old), shown(old), "")
		case !reflect.DeepEqual(old, now): // lists may have thousands of equal elements
			d.object(path(old), reflect.ValueOf(old), reflect.ValueOf(now))
		}
	}
	for _, e := range b {
		if _, ok := before[name(e)]; !ok {
			d.add(path(e), "", shown(e))
		}
	}
}

func byName[T any](list []T, name func(T) string) map[string]T {
	named := make(map[string]T, len(list))
	for _, e := range slices.Backward(list) {
		named[name(e)] = e
	}
	return named
}
