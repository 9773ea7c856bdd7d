package grid

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// All sessions begin within a moment, and one goes on for a day: its requests are counted, and what is kept
// of the play stays small.
func TestWindowsOfASessionThatOutlivesAllOthers(t *testing.T) {
	var rs []cluster.Record
	for i := range 100 {
		rs = append(rs, cluster.Record{Session: i, At: time.Duration(i) * time.Millisecond, Output: 1})
	}
	for call := range 24 {
		at := time.Duration(call+1) * time.Hour
		rs = append(rs, cluster.Record{Session: 99, Call: call + 1, At: at, Output: 1})
	}
	w, counted := windows(rs), 0
	for _, n := range w.Asked {
		counted += n
	}
	if len(w.Asked) > mostWindows || counted != 104 {
		t.Errorf("%d requests in %d windows, want those of four fifths of the time", counted, len(w.Asked))
	}
}
