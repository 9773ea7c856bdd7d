package peer

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/tools/pinned"
)

func TestPins(t *testing.T) {
	if err := pinned.Check(pins, "vllm-router", Version); err != nil {
		t.Error(err)
	}
}

func TestCommand(t *testing.T) {
	r := Router{dir: "there"}
	program, args, err := r.Command("127.0.0.1:1", "127.0.0.1:2", []string{"http://p0", "http://p1"},
		[]string{"http://d0"}, "--disable-retries")
	if err != nil || program != filepath.Join("there", "venv", "bin", "python") {
		t.Fatalf("program = %q %v", program, err)
	}
	line := strings.Join(args, " ")
	for _, want := range []string{
		"--host 127.0.0.1 --port 1", "--prometheus-port 2",
		"--prefill http://p0 --prefill http://p1 --decode http://d0 --disable-retries",
	} {
		if !strings.Contains(line, want) {
			t.Errorf("%q is not in %q", want, line)
		}
	}
	if _, _, err := r.Command("nowhere", "127.0.0.1:2", nil, nil); err == nil {
		t.Error("an address without a port passes")
	}
}

// A failed installation says what failed. It is not marked as done, so the next call tries again.
func TestInstallFails(t *testing.T) {
	root := t.TempDir()
	python := filepath.Join(root, "python")
	script := "#!/bin/sh\ncase \"$1\" in -c) echo 3 11;; *) echo no room >&2; exit 1;; esac\n"
	if err := os.WriteFile(python, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHON", python)
	var said []string
	say := func(format string, _ ...any) { said = append(said, format) }
	for range 2 {
		if _, err := Install(t.Context(), filepath.Join(root, "cache"), say); err == nil ||
			!strings.Contains(err.Error(), "no room") {
			t.Errorf("Install = %v, want what venv said", err)
		}
	}
	if len(said) != 2 || slices.Contains(said, "") {
		t.Errorf("said %q, want two attempts", said)
	}
}
