package observe

import (
	"testing"
	"time"

	"github.com/tandem-router/tandem/internal/capture"
)

// Nobody waits for a slow reader: what does not fit is counted. A request that came before is not captured.
func TestCaptureLosesRatherThanWaits(t *testing.T) {
	var all Captures
	began := time.Now()
	taking, end := all.begin(began, 16)
	defer end()
	for range captureBuffer {
		taking.lines <- capture.Request{}
	}
	for _, came := range []time.Time{began.Add(time.Second), began.Add(-time.Second)} {
		all.Note(func() Served { return Served{Came: came} })
	}
	if n := taking.lost.Load(); n != 1 {
		t.Errorf("%d lost, want 1", n)
	}
}
