package claims

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// folder holds a small trace of conversations under the file name of the large trace.
func folder(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for i := range 300 {
		fmt.Fprintf(z, `{"timestamp": %d, "input_length": %d, "output_length": %d, "hash_ids": [0, %d, %d]}`+"\n",
			i/5*3000, 1500, 20+i%7, i/2*2+1, i/2*2+2)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, Conversation.file()), b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The same plays give the same lines, no matter how many plays run at a time.
func TestRunIsTheSame(t *testing.T) {
	var runs [2][]Line
	for i := range runs {
		var err error
		o := Options{Traces: folder(t), Workers: 1 + 2*i, Only: []string{
			"quick_ttft_mean_below_round-robin/conversation", "quick_tpot_p99_over_round-robin/conversation",
		}}
		if runs[i], err = Run(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if len(runs[0]) != 2 || !reflect.DeepEqual(runs[0], runs[1]) {
		t.Errorf("%+v\n%+v", runs[0], runs[1])
	}
	for _, l := range runs[0] {
		if l.Name == "" || l.How == "" || l.Note == "" || l.Low > l.Value || l.High < l.Value {
			t.Errorf("%+v", l)
		}
	}
}

func TestRunMistakes(t *testing.T) {
	if _, err := Run(t.Context(), Options{Only: []string{"x"}}); err == nil ||
		!strings.Contains(err.Error(), `"x"`) {
		t.Error(err)
	}
	if _, err := Run(t.Context(), Options{Traces: t.TempDir()}); err == nil ||
		!strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
}

func TestNamesAreUnique(t *testing.T) {
	for _, all := range []bool{false, true} {
		o := Options{All: all}
		seen := map[string]bool{}
		for _, name := range o.Names() {
			if seen[name] || strings.ContainsAny(name, " \t") {
				t.Errorf("claim %q is listed twice, or contains a blank", name)
			}
			seen[name] = true
		}
		if len(seen) < 6 {
			t.Errorf("%d claims", len(seen))
		}
	}
}

// Requests are measured according to the start of their session, because no policy changes that time.
func TestMeasured(t *testing.T) {
	rs := []cluster.Record{
		{Session: 1, Call: 1, At: 90 * time.Second},
		{Session: 0, At: 0},
		{Session: 0, Call: 1, At: 99 * time.Second},
		{Session: 1, At: 20 * time.Second},
		{Session: 2, At: 100 * time.Second, Refused: true, Prefill: -1, Decode: -1},
	}
	got := measured(rs, Agents)
	if len(got) != 3 || got[0].id() != (id{1, 0}) || got[1].id() != (id{1, 1}) || got[2].id() != (id{2, 0}) {
		t.Fatalf("%+v", got)
	}
	if !got[2].Refused || got[2].TTFT != replay.RefusedTTFT || got[2].good() || got[2].local() ||
		!got[0].good() {
		t.Errorf("%+v", got)
	}
	calls := []*Trial{{Answers: measured(rs, Clients)}}
	if all := len(calls[0].Answers); all != len(rs) {
		t.Errorf("%d of %d calls of clients are measured", all, len(rs))
	}
	counted := 0.0
	for _, w := range sampleOf(steady(meanTTFT), calls, nil).weight {
		counted += w
	}
	if counted != 2 {
		t.Errorf("%g calls of steady clients count, want the second calls", counted)
	}
}

func TestWriteAndMissed(t *testing.T) {
	lines := []Line{{Name: "a", Value: 0.06, Target: 0.05, Bound: AtMost}, {Name: "b", Holds: true}}
	if err := Missed(lines); err == nil || strings.Count(err.Error(), "missed") != 1 {
		t.Error(err)
	}
	var b bytes.Buffer
	var back []map[string]any
	if err := Write(&b, lines); err != nil || json.Unmarshal(b.Bytes(), &back) != nil || len(back) != 2 ||
		len(back[0]) != 6 {
		t.Errorf("%v: %s", err, b.String())
	}
	b.Reset()
	if err := Print(&b, lines); err != nil || !strings.Contains(b.String(), "MISSED") ||
		!strings.Contains(b.String(), "1 of 2 hold") {
		t.Errorf("%v: %s", err, b.String())
	}
}
