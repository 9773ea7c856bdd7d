package core

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/kv"
)

// The script that was run on a real vLLM 0.32.0 gives the same events in the same order: hits, stores, lazy
// evictions.
func TestEventsAreThoseOfVLLM(t *testing.T) {
	e := New(Config{Blocks: 40, BlockSize: 32, MaxModelLen: 1024})
	b := newBench(t, e)
	first := prompt(1, 100)
	b.plain(e, "fresh", first, 2)
	b.plain(e, "again", first, 2)
	b.plain(e, "longer", append(first[:96:96], prompt(2, 44)...), 2)
	b.plain(e, "generates", prompt(3, 60), 70)
	b.add(e, &Request{ID: "salted", Prompt: first, MaxTokens: 2, Salt: "s"})
	b.settle()
	b.add(e, &Request{ID: "twin 1", Prompt: prompt(4, 200), MaxTokens: 2})
	b.add(e, &Request{ID: "twin 2", Prompt: prompt(4, 200), MaxTokens: 2})
	b.settle()
	for i := range 8 {
		b.plain(e, fmt.Sprint("fill ", i), prompt(uint64(10+i), 300), 2)
	}
	if !e.ResetPrefixCache() {
		t.Fatal("reset refused")
	}
	if st := e.Step(b.now); len(st.Events) != 0 {
		t.Error("an idle engine published the reset")
	}
	b.plain(e, "after", prompt(5, 60), 2)
	b.plain(e, "chat", prompt(6, 90), 2)

	want, err := os.ReadFile("testdata/events-vllm-0.32.0.txt")
	if err != nil {
		t.Fatal(err)
	}
	compareLines(t, tell(b.events[e]), string(want))
}

// tell formats events. It numbers hashes in the order of their first store.
func tell(events []kv.Event) string {
	names := map[kv.EngineHash]int{}
	var out strings.Builder
	for _, ev := range events {
		switch ev.Kind {
		case kv.Cleared:
			out.WriteString("clear\n")
		case kv.Removed:
			fmt.Fprintf(&out, "remove b%d\n", names[ev.Hashes[0]])
		case kv.Stored:
			out.WriteString("store")
			for _, h := range ev.Hashes {
				if _, ok := names[h]; !ok {
					names[h] = len(names)
				}
				fmt.Fprintf(&out, " b%d", names[h])
			}
			if ev.HasParent {
				fmt.Fprintf(&out, " after b%d\n", names[ev.Parent])
			} else {
				out.WriteString(" after -\n")
			}
		}
	}
	return out.String()
}

func compareLines(t *testing.T, got, want string) {
	t.Helper()
	var ws []string
	for line := range strings.Lines(want) {
		if !strings.HasPrefix(line, "#") {
			ws = append(ws, line)
		}
	}
	gs := strings.SplitAfter(strings.TrimSuffix(got, "\n"), "\n")
	for i := range max(len(gs), len(ws)) {
		var g, w string
		if i < len(gs) {
			g = strings.TrimSpace(gs[i])
		}
		if i < len(ws) {
			w = strings.TrimSpace(ws[i])
		}
		if g != w {
			t.Fatalf("event %d: got %q, vLLM wrote %q", i, g, w)
		}
	}
}
