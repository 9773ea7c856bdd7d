package grid

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// All sessions begin almost at the same time, and one session lasts a day. Its requests are counted, and
// the stored windows of the play stay few.
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
		t.Errorf("%d requests in %d windows, want the requests of four fifths of the time", counted, len(w.Asked))
	}
}
