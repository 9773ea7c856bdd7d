package config

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// docRow is a row of the reference.
type docRow struct{ typ, def, restart string }

var docLine = regexp.MustCompile("(?m)^\\| `([a-zA-Z0-9_.]+)`( ↻)? \\| ([^|]*) \\| ?([^|]*) \\|")

func documented(t *testing.T) map[string]docRow {
	t.Helper()
	data, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]docRow{}
	for _, m := range docLine.FindAllStringSubmatch(string(data), -1) {
		if _, twice := rows[m[1]]; twice {
			t.Errorf("docs/configuration.md has %s twice, want once", m[1])
		}
		rows[m[1]] = docRow{typ: m[3], def: strings.TrimSpace(m[4]), restart: m[2]}
	}
	return rows
}

// The reference and the structs agree about fields, types, defaults, and whether a change needs a restart.
func TestReferenceIsTrue(t *testing.T) {
	rows := documented(t)
	for _, f := range fields() {
		row, ok := rows[f.path]
		delete(rows, f.path)
		if !ok {
			t.Errorf("docs/configuration.md lacks %s", f.path)
			continue
		}
		if want := docType(f); row.typ != want {
			t.Errorf("docs/configuration.md: got type %q of %s, want %q", row.typ, f.path, want)
		}
		if want := docDefault(f); row.def != want {
			t.Errorf("docs/configuration.md: got default %q of %s, want %q", row.def, f.path, want)
		}
		if marked, want := row.restart != "", Effect(
			strings.Replace(f.path, "POOL", "prefill", 1),
		) == NeedsRestart; marked != want {
			t.Errorf("docs/configuration.md: got %s marked with ↻ %v, want %v", f.path, marked, want)
		}
	}
	for path := range rows {
		t.Errorf("docs/configuration.md has %s, but no such field exists", path)
	}
}

func docType(f fieldInfo) string {
	switch f.typ {
	case reflect.TypeFor[Secret]():
		if f.path == "api_keys" {
			return "list of secret"
		}
		return "secret"
	case reflect.TypeFor[[]Replica]():
		return "list of replica"
	case reflect.TypeFor[Alpha]():
		return "number or auto"
	}
	if isList(f) {
		return "list of text"
	}
	return strings.TrimPrefix(typeName(f.typ), "a ")
}

// isList says whether a field is a list whose elements have their own rows in the table.
func isList(f fieldInfo) bool {
	return f.typ == reflect.TypeFor[[]Replica]() || strings.HasPrefix(f.path, "discovery.dns.") ||
		f.path == "routers.peers" || f.path == "admin.hosts" || slices.Contains(listsOfText, f.path) ||
		f.path == "answer_cache.valkey.addresses" || f.path == "routers.valkey.addresses"
}

var listsOfText = []string{
	"cors.origins",
	"keys.models", "keys.classes", "classes.match.keys", "classes.match.models", "classes.match.paths",
}

func docDefault(f fieldInfo) string {
	switch {
	case f.typ == reflect.TypeFor[Secret](), isList(f):
		return "none"
	case !f.def.IsValid():
		return ""
	case f.typ == reflect.TypeFor[time.Duration]():
		return "`" + strings.TrimSuffix(show(f.def), "m0s") +
			map[bool]string{true: "m"}[strings.HasSuffix(show(f.def), "m0s")] + "`"
	}
	return "`" + show(f.def) + "`"
}

var (
	shortLine = regexp.MustCompile("(?m)^\\| (.*`.*`.*) \\| .* \\|$")
	shortName = regexp.MustCompile("`([a-zA-Z0-9_.]+)`")
	heading   = regexp.MustCompile("(?m)^## (.*)$")
)

// The first page is short. Each field on this page has a link to the section that describes the field.
func TestReferenceBeginsWithWhatMatters(t *testing.T) {
	data, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(data), "\n## ")
	lines := shortLine.FindAllStringSubmatch(first, -1)
	if len(lines) < 10 || len(lines) > 14 {
		t.Errorf("got %d rows on the first page, want 10 to 14", len(lines))
	}
	if n := strings.Count(first, "\n"); n > 60 {
		t.Errorf("got %d lines on the first page, want at most 60", n)
	}
	for _, line := range lines {
		for _, name := range shortName.FindAllStringSubmatch(line[1], -1) {
			if section := sectionOf(string(data), general(name[1])); !strings.Contains(line[1], "(#"+section+")") {
				t.Errorf("the first page links %s to another section, want section %q",
					name[1], section)
			}
		}
	}
	headings := heading.FindAllStringSubmatch(string(data), -1)
	if last := headings[len(headings)-1][1]; last != "Experimental" {
		t.Errorf("got last section %s, want Experimental", last)
	}
}

// sectionOf returns the anchor of the section whose table has the field, or fields below it.
func sectionOf(doc, field string) string {
	row := regexp.MustCompile("(?m)^\\| `" + regexp.QuoteMeta(field) + "[.`]")
	for section := range strings.SplitSeq(doc, "\n## ") {
		if title, _, _ := strings.Cut(section, "\n"); row.MatchString(section) {
			return strings.ReplaceAll(strings.ToLower(title), " ", "-")
		}
	}
	return ""
}

// The example at the top of the reference works.
func TestReferenceExample(t *testing.T) {
	data, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "```yaml\n")
	text, _, _ := strings.Cut(rest, "```")
	c, err := Parse("example.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Pools.Prefill.Replicas) != 2 || c.Pools.Decode.Replicas[1].Place.Rack != "a" {
		t.Errorf("got %+v, want 2 prefill replicas, and rack a for d1", c.Pools)
	}
}
