package main

import (
	"slices"
	"strings"
	"testing"
)

// Every act runs in exactly one lane, and all acts of a fleet run in the same lane.
func TestLanesPlayEveryActOnce(t *testing.T) {
	program, err := chosen("")
	if err != nil {
		t.Fatal(err)
	}
	lanes := lanesOf(program)
	if len(lanes) != 2 {
		t.Fatalf("%d lanes, want 2", len(lanes))
	}
	var names []string
	where := map[*fleet]string{}
	for _, l := range lanes {
		if again, err := chosen(l.names()); err != nil || len(again) != len(l.acts) {
			t.Errorf("the lane %s starts with -only %q: %v", l.name, l.names(), err)
		}
		for _, a := range l.acts {
			names = append(names, a.name)
			if at, known := where[a.fleet]; known && at != l.name {
				t.Errorf("the fleet %s is in the lanes %s and %s", a.fleet.name, at, l.name)
			}
			where[a.fleet] = l.name
		}
	}
	if len(names) != len(program) || len(slices.Compact(slices.Sorted(slices.Values(names)))) != len(program) {
		t.Errorf("the lanes play %v, want each of %d acts once", names, len(program))
	}
}

func TestLanesNeedSeveralFleets(t *testing.T) {
	program, err := chosen("answers,faults")
	if err != nil {
		t.Fatal(err)
	}
	if lanes := lanesOf(program); len(lanes) != 1 || lanes[0].name != "pools" {
		t.Errorf("lanes of two acts of one fleet: %v", lanes)
	}
	both := lanesOf(acts)
	for _, o := range []options{
		{simulate: true},
		{simulate: true, lanes: true, attach: "file"},
		{simulate: true, lanes: true, stay: "file"},
		{simulate: true, lanes: true, lane: "pools"},
	} {
		if o.sideBySide(both) {
			t.Errorf("%+v runs in parallel lanes", o)
		}
	}
	if o := (options{simulate: true, lanes: true}); !o.sideBySide(both) {
		t.Error("simulated engines do not run in parallel lanes")
	}
}

// The ports of two lanes never overlap, even with all ranks of an engine.
func TestLanesHavePortsOfTheirOwn(t *testing.T) {
	_, last := portsOf("pools")
	first, _ := portsOf("others")
	if first <= last {
		t.Errorf("the ports of pools end at %d, those of others begin at %d", last, first)
	}
}

func TestMemoryIsRead(t *testing.T) {
	for text, want := range map[string]int64{
		"MemTotal:       24683520 kB\nMemAvailable:   21517312 kB\nSwapFree: 0 kB\n": 21517312 << 10,
		"MemTotal:       24683520 kB\n":                                              0,
		"MemAvailable:   much\n":                                                     0,
		"":                                                                           0,
	} {
		if got := memoryIn([]byte(text)); got != want {
			t.Errorf("available memory of %q: %d, want %d", text, got, want)
		}
	}
}

func TestLinesKeepTheirSource(t *testing.T) {
	var out strings.Builder
	w := &lines{to: &out}
	w.copy("pools", strings.NewReader("one\ntwo\n"))
	w.copy("others", strings.NewReader(strings.Repeat("x", 2<<20)+"\n"))
	if got, want := out.String(), "pools  one\npools  two\n"; got != want {
		t.Errorf("lines %q, want %q", got, want)
	}
}
