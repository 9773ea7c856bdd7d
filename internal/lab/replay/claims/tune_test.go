package claims

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-router/tandem/internal/lab/replay"
)

// burst is a trace of prompts that share nothing. They arrive in bursts that cause queues.
func burst(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	text.WriteString(`{"tandem_trace":1}` + "\n")
	for i := range 200 {
		fmt.Fprintf(&text, `{"t":%.2f,"in":%d,"out":8}`+"\n", float64(i/10)*1.5+float64(i%10)*0.01, 2000+1000*(i%5))
	}
	file := filepath.Join(t.TempDir(), "burst.jsonl")
	if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// The first weights ignore queues, and the tuning finds weights that see queues. The gain is certain and
// is reported as certain.
func TestTuneFindsWhatIsWrong(t *testing.T) {
	mean, err := ObjectiveNamed("mean-ttft")
	if err != nil {
		t.Fatal(err)
	}
	said := 0
	got, err := Tune(t.Context(), Search{
		Play: replay.Play{Trace: burst(t), Cluster: "4P2D", Profile: "8b", Scale: 1, Seed: 1},
		From: Weights{Alpha: 1, Beta: 0, Gamma: 1, Penalty: 1}, Objective: mean, Seeds: 2,
		Progress: func(string, float64) { said++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	sees := got.Weights.Beta > 0 || got.Weights.Alpha == 0 // Alpha 0 is auto
	if !sees || got.Gain.Value < 0.05 || got.Gain.Low <= 0 || got.Gain.High < got.Gain.Value {
		t.Errorf("found %+v with a gain of %+v", got.Weights, got.Gain)
	}
	if got.Tried < len(steps) || said < got.Tried {
		t.Errorf("%d tries, %d of them reported", got.Tried, said)
	}
	if len(got.Others) != len(Objectives())-1+len(otherLoads) {
		t.Errorf("effects %+v", got.Others)
	}
	for _, e := range got.Others {
		if e.Name == "p99-ttft" && e.Loses() {
			t.Errorf("weights that see queues lose at the tail: %+v", e)
		}
	}
}

func TestTriesLeaveTheRest(t *testing.T) {
	from := Weights{Alpha: 1, Beta: 2, Gamma: 3, Penalty: 0.25}
	seen := map[Weights]bool{}
	for _, s := range steps {
		for _, w := range s.tries(from) {
			changed := 0
			for _, differs := range []bool{
				w.Alpha != from.Alpha, w.Beta != from.Beta, w.Gamma != from.Gamma, w.Penalty != from.Penalty,
			} {
				if differs {
					changed++
				}
			}
			if changed != 1 || seen[w] {
				t.Errorf("%+v from %+v", w, from)
			}
			seen[w] = true
		}
	}
	if len(seen) != 4+5+4+5 {
		t.Errorf("%d tries", len(seen))
	}
}

func TestGainKnowsWhatIsBetter(t *testing.T) {
	for _, c := range []struct {
		name string
		a, b float64
		want float64
	}{{"mean-ttft", 2, 1, 0.5}, {"mean-ttft", 1, 2, -1}, {"goodput", 0.5, 1, 0.5}, {"goodput", 1, 0.5, -1}} {
		o, err := ObjectiveNamed(c.name)
		if got := o.gain(c.a, c.b); err != nil || got != c.want {
			t.Errorf("%s from %v to %v: %v, want %v", c.name, c.a, c.b, got, c.want)
		}
	}
	if _, err := ObjectiveNamed("beauty"); err == nil || !strings.Contains(err.Error(), "goodput") {
		t.Errorf("an unknown objective: %v", err)
	}
}
