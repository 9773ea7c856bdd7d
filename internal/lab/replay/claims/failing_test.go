package claims

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// Each failure is named correctly, happens in the middle of the play, and does not overlap another
// failure.
func TestFailingsAreInTheMiddle(t *testing.T) {
	s := cell{Conversation, "8P8D", 4, halfCapacity}.setting(ours)
	end := time.Duration(float64(s.Span) / s.Load)
	for _, f := range failings() {
		s.Troubles = f.troubles
		fleet, err := s.play("").Fleet()
		if err != nil {
			t.Errorf("%s: %v", f.name, err)
		}
		from, to, err := span(f.troubles)
		if err != nil || from < end/4 || to > end-time.Minute || len(fleet.Troubles) == 0 {
			t.Errorf("%s: from %v to %v of %v, %v", f.name, from, to, end, err)
		}
	}
}

// A client's error counts as the longest wait and is not a good answer. Requests that arrived during the
// trouble are left out.
func TestErrorsAndWhoCameMeanwhile(t *testing.T) {
	runs := []*Trial{{Answers: measured([]cluster.Record{
		{Session: 0, At: 10 * time.Second, TTFT: time.Second},
		{Session: 1, At: 20 * time.Second, Failed: true, Failures: 3},
		{Session: 2, At: 30 * time.Second, TTFT: 3 * time.Second, Failures: 1},
		{Session: 3, At: 25 * time.Second, Refused: true},
	}, Conversation)}}
	if got := value(errors10k, runs); got != 5000 {
		t.Errorf("%g errors of 10,000, want half", got)
	}
	if got := value(meanTTFT, runs); got != (1+3+2*replay.RefusedTTFT)/4 {
		t.Errorf("mean %g", got)
	}
	if got := value(good, runs); got != 0.5 {
		t.Errorf("good %g", got)
	}
	keep := common(runs)
	drop(keep, runs, 20*time.Second, 30*time.Second)
	if len(keep[0]) != 2 || !keep[0][id{0, 0}] || !keep[0][id{2, 0}] {
		t.Errorf("%v are outside", keep)
	}
}

func TestFailingClaimsOnASmallTrace(t *testing.T) {
	o := Options{Traces: folder(t), All: true, Workers: 2, Only: []string{"decode_fails"}}
	lines, err := Run(t.Context(), o)
	if err != nil || len(lines) != 3 {
		t.Fatalf("%+v, %v", lines, err)
	}
	for _, l := range lines {
		if l.Note == "" || l.How == "" || l.Low > l.Value || l.High < l.Value {
			t.Errorf("%+v", l)
		}
	}
}
