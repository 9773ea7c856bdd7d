package config

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// The error of each mistake in classes names the field and says what to write.
func TestProblemsOfClasses(t *testing.T) {
	for name, row := range map[string]struct{ more, want string }{
		"no name": {"classes: [{ttft: 1s}]", "classes[0].name: is no name of a class; write 1 to 64"},
		"two of one name": {
			"classes: [{name: a}, {name: a}]",
			"classes[1].name: is the second class with the name a, after classes[0]; rename",
		},
		"goal of 0": {
			"classes: [{name: a, ttft: 0}]",
			"classes[0].ttft: is 0, which no request can keep; leave",
		},
		"goal of 0s": {
			"classes: [{name: a, tpot: 0s}]",
			"classes[0].tpot: is 0, which no request can keep; leave",
		},
		"goal too short": {
			"classes: [{name: a, tpot: 20us}]",
			"classes[0].tpot: is 20µs, which no request can keep; give at least 1ms",
		},
		"no unit": {"classes: [{name: a, ttft: 500}]", "classes[0].ttft: has no unit; write"},
		"deadline": {
			"classes: [{name: a, ttft: 2s, deadline: 1s}]",
			"classes[0].deadline: is 1s, before the first token is due (ttft: 2s); make it longer than ttft",
		},
		"refuses at once": {"classes: [{name: a, refuse: 0}]", "classes[0].refuse: would refuse every request"},
		"refuses before":  {"classes: [{name: a, refuse: -1ns}]", "classes[0].refuse: would refuse every request"},
		"refuses at another word": {
			"classes: [{name: a, refuse: off}]",
			`classes[0].refuse: "off" is not a duration; write a number and a unit`,
		},
		"refuses a list": {"classes: [{name: a, refuse: [1s]}]", "classes[0].refuse: is a list where"},
		"refuses what keeps its goal": {
			"classes: [{name: a, ttft: 2s, refuse: 1s}]",
			"classes[0].refuse: is 1s, within the goal for the first token (ttft: 2s); make it longer than ttft, or",
		},
		"refuses too late": {
			"classes: [{name: a, deadline: 2s, refuse: 3s}]",
			"classes[0].refuse: is 3s, after the last token is due (deadline: 2s); make it shorter than deadline, or",
		},
		"rank": {"classes: [{name: a, rank: -1}]", "classes[0].rank: is -1; choose from 0"},
		"path": {
			"classes: [{name: a, match: {paths: [v1]}}]",
			"classes[0].match.paths[0]: does not begin with a slash; write",
		},
		"header": {
			"classes: [{name: a, match: {header: {name: x}}}]",
			"classes[0].match.header: has a name or a value alone; write both",
		},
		"header name": {
			`classes: [{name: a, match: {header: {name: "x y", value: z}}}]`,
			"header.name: is no name of a header; write it as",
		},
		"no such key": {
			"classes: [{name: a, match: {keys: [c]}}]",
			`classes[0].match.keys[0]: there is no key "c"; write the name`,
		},
		"key's class": {
			"keys: [{name: a, secret: {value: x}, class: chat}]\nclasses: [{name: char}]",
			`keys[0].class: there is no class "chat"; did you mean "char"?`,
		},
		"no classes": {
			"keys: [{name: a, secret: {value: x}, classes: [chat]}]",
			`keys[0].classes: there is no class "chat"; write the class under classes`,
		},
		"weight of 0": {
			"keys: [{name: a, secret: {value: x}, weight: 0}]",
			"keys[0].weight: is no weight: the tenant would get nothing",
		},
		"weight below 0": {
			"keys: [{name: a, secret: {value: x}, weight: -2}]",
			"keys[0].weight: is no weight",
		},
		"two weights": {
			"keys: [{name: a, secret: {value: x}, weight: 2}, {name: c, tenant: a, secret: {value: y}, weight: 3}]",
			"gives tenant a the weight 3, and another key gives it 2; write the weight at one key",
		},
		"of key files, weight":      {"", "keys:1:1: weight: is no weight"},
		"of key files, weight text": {"", "keys:1:1: weight: is no weight"},
		"of key files, class": {
			"classes: [{name: fast}]",
			`keys:1:1: class: there is no class "slow"; known here: default, fast`,
		},
	} {
		lines := `{"name": "b", "sha256": "` + hashOfEmpty + `"}`
		for field, value := range map[string]string{"class": `"slow"`, "weight": "0", "weight text": `"x"`} {
			if name == "of key files, "+field {
				field, _, _ = strings.Cut(field, " ")
				lines = `{"name": "b", "sha256": "` + hashOfEmpty + `", "` + field + `": ` + value + `}`
			}
		}
		path, _ := keyed(t, row.more+"\n", lines+"\n")
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: got %v\nwant %s", name, err, row.want)
		}
	}
}

// Classes survive writing and reading the effective configuration, and a reload reports their changes.
func TestClassesComeBack(t *testing.T) {
	read := func(text string) *Config {
		t.Helper()
		c, err := Parse("x", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	const match = "match: {header: {name: x-tier, value: gold}, models: [m]}"
	c := read("classes: [{name: a, ttft: 500ms, refuse: 2s, " + match + "}, {name: b, rank: 1, refuse: never}]")
	if a := c.Classes[0]; a.TTFT != Goal(500*time.Millisecond) || c.Classes[1].Refuse != Never ||
		a.Refuse != Refusal(2*time.Second) || a.Match.Header.Name != "X-Tier" {
		t.Errorf("got class %+v, want its goal, refusals and header", a)
	}
	text, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	if again := read(string(text)); !reflect.DeepEqual(again.Classes, c.Classes) {
		t.Errorf("got %+v, want %+v, from %s", again.Classes, c.Classes, text)
	}
	var told []string
	for _, ch := range Diff(c, read("classes: [{name: a, ttft: 1s, refuse: never, "+match+"}]")) {
		told = append(told, ch.String())
	}
	want := "classes[a].ttft: 500ms -> 1s (applies at once)\n" +
		"classes[a].refuse: 2s -> never (applies at once)\n" +
		"classes[b]: - no goals, refuse never (applies at once)"
	if got := strings.Join(told, "\n"); got != want {
		t.Errorf("got changes %s\nwant %s", got, want)
	}
}
