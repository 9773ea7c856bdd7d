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

// TestRehearsal plays gpu.py whole, with the built binaries between simulated engines. The mode of pulls
// fails if a prefill engine pulls nothing, or if an answer is wrong.
func TestRehearsal(t *testing.T) {
	bin := build(t)
	t.Run("own", func(t *testing.T) {
		out := rehearse(t, bin, []string{"-stream-tokens", "100"},
			"## Time to the first token", "| pair | transfers |", "## The act answers: held",
			"| decode, under 8 streams | 8 | 8 |", "| prefill, under 48 prompts | 48 | 48 |")
		if logs, err := filepath.Glob(filepath.Join(out, "tandem-*.jsonl")); err != nil || len(logs) < 4 {
			t.Errorf("%d files of decisions: %v", len(logs), err)
		}
		if _, err := os.Stat(filepath.Join(out, "fleet.json")); err != nil {
			t.Error(err)
		}
	})
	t.Run("p2p", func(t *testing.T) {
		rehearse(t, bin, []string{"-p2p"},
			"## Pulls (big)", "| 2048 | 2048 | 2 of 2 |", "| 8192 | 8192 | 2 of 2 |",
			"## Pulls (tiny)", "| 896 | 896 | 2 of 2 |")
	})
}

// build returns a folder with the binaries that the script starts.
func build(t *testing.T) (bin string) {
	t.Helper()
	bin = t.TempDir()
	for name, pkg := range map[string]string{"tandem": "cmd/tandem", "e2evllm": "tools/e2evllm"} {
		cmd := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(bin, name),
			"github.com/tandem-router/tandem/"+pkg)
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
	}
	return bin
}

// rehearse plays the script in one mode, with each want in its output, and returns the folder of its logs.
func rehearse(t *testing.T, bin string, mode []string, wants ...string) (out string) {
	t.Helper()
	python, err := pinned.Python(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out = t.TempDir()
	args := append([]string{
		"gpu.py", "-rehearse", "-out", out, "-repeats", "1",
		"-tandem", filepath.Join(bin, "tandem"), "-e2evllm", filepath.Join(bin, "e2evllm"),
	}, mode...)
	said, err := exec.CommandContext(t.Context(), python, args...).CombinedOutput()
	text := string(said)
	if err != nil {
		t.Error(err)
	}
	for _, want := range append(wants, "everything held") {
		if !strings.Contains(text, want) {
			t.Errorf("the output has no %q", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
	return out
}
