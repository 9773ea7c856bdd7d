// Package gpu has no code of its own: its test plays the script beside it with simulated engines.
package gpu

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/tools/pinned"
)

// TestRehearsal plays gpu.py whole, with the built binaries between simulated engines.
func TestRehearsal(t *testing.T) {
	python, err := pinned.Python(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	bin, out := t.TempDir(), t.TempDir()
	args := []string{"gpu.py", "-rehearse", "-out", out, "-repeats", "1", "-stream-tokens", "100"}
	for name, pkg := range map[string]string{"tandem": "cmd/tandem", "e2evllm": "tools/e2evllm"} {
		path := filepath.Join(bin, name)
		build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "github.com/tandem-router/tandem/"+pkg)
		if said, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		args = append(args, "-"+name, path)
	}
	said, err := exec.CommandContext(t.Context(), python, args...).CombinedOutput()
	text := string(said)
	if err != nil {
		t.Errorf("%v: %s", err, text)
	}
	for _, want := range []string{
		"## Time to the first token", "| pair | transfers |", "## The act answers: held",
		"| decode, under 8 streams | 8 | 8 |", "| prefill, under 48 prompts | 48 | 48 |", "everything held",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the output has no %q", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
	if logs, err := filepath.Glob(filepath.Join(out, "tandem-*.jsonl")); err != nil || len(logs) < 4 {
		t.Errorf("%d files of decisions: %v", len(logs), err)
	}
	if _, err := os.Stat(filepath.Join(out, "fleet.json")); err != nil {
		t.Error(err)
	}
}
