package pinned

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAStepIsDoneOnce runs a step that fails, then a step that succeeds. A third call runs nothing.
func TestAStepIsDoneOnce(t *testing.T) {
	dir, calls := t.TempDir(), 0
	step := func(fail error) func(context.Context) error {
		return func(context.Context) error { calls++; return fail }
	}
	if err := Once(t.Context(), t.Logf, dir, "s", step(errors.New("no network"))); err == nil ||
		!strings.Contains(err.Error(), "no network") {
		t.Errorf("the reason is not told: %v", err)
	}
	for range 2 {
		if err := Once(t.Context(), t.Logf, dir, "s", step(nil)); err != nil {
			t.Error(err)
		}
	}
	if calls != 2 {
		t.Errorf("made %d times, want once after the failure", calls)
	}
}

// TestAFailedCommandTellsItsOutput and an interrupted one ends with its children.
func TestAFailedCommandTellsItsOutput(t *testing.T) {
	if err := Run(t.Context(), []string{"WHY=no such package"}, "sh", "-c", `echo "$WHY"; exit 3`); err == nil ||
		!strings.Contains(err.Error(), "no such package") {
		t.Errorf("the output is not told: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	pid := filepath.Join(t.TempDir(), "pid")
	go func() {
		_ = eventually(ctx, 10*time.Second, func() error { _, err := os.Stat(pid); return err })
		cancel()
	}()
	if err := Run(ctx, []string{"FILE=" + pid}, "sh", "-c",
		`sleep 1000 & echo $! >"$FILE.new"; mv "$FILE.new" "$FILE"; wait`); err == nil {
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

// TestAnotherPartIsAnotherFolder: other parts get another folder, and the earlier folder stays.
func TestAnotherPartIsAnotherFolder(t *testing.T) {
	seen := map[string]bool{}
	for _, parts := range [][][]byte{
		{[]byte("a")}, {[]byte("b")}, {[]byte("ab")}, {[]byte("a"), []byte("b")}, {[]byte("a"), []byte("b"), nil},
	} {
		seen[Folder("root", "what", parts...)] = true
	}
	if len(seen) != 5 {
		t.Errorf("%d folders for five different things: %v", len(seen), seen)
	}
}

// A Python of another version is refused, and the error says what to install.
func TestPython(t *testing.T) {
	other := filepath.Join(t.TempDir(), "python")
	if err := os.WriteFile(other, []byte("#!/bin/sh\necho 3 9\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHON", other)
	if got, err := Python(t.Context()); err == nil || !strings.Contains(err.Error(), "python3.11-venv") {
		t.Errorf("Python = %q %v", got, err)
	}
	if err := os.WriteFile(other, []byte("#!/bin/sh\necho 3 11\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := Python(t.Context()); err != nil || got != other {
		t.Errorf("Python = %q %v", got, err)
	}
}

// eventually repeats f until it has no error. After limit it returns the last error.
func eventually(ctx context.Context, limit time.Duration, f func() error) error {
	for deadline := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		if err := f(); err == nil || ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
	}
}
