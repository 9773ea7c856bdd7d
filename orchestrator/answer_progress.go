package orchestrator

import (
	"time"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/openai"
)

// legListener is the leg whose answer a reader reads.
type legListener interface {
	// streamed is called when something was read. It reports whether progressed should be called.
	streamed(now time.Time) bool
	progressed(p decode.Progress, now time.Time)
	// prefillCached returns the cached tokens of the replica that computed the prompt.
	prefillCached() openai.CachedPrompt
	// delivered gets the engine's usage of the request.
	delivered(u openai.Usage)
}

// eventFlow is the progress of a stream.
type eventFlow struct {
	events  int           // that were read
	gave    int           // events that were sent to the client
	blocked time.Duration // time in which the client made writes wait
	noted   time.Time     // time of the last report to the planner
}

// progress returns the report to the planner.
func (f *eventFlow) progress() decode.Progress {
	return decode.Progress{Events: f.events, Held: f.blocked}
}

// noteProgress reports each read, and from time to time the progress of the stream. So the planner learns
// whether the engine has become slow.
func (s *eventReader) noteProgress(now time.Time) {
	if s.leg == nil || !s.leg.streamed(now) {
		return
	}
	if now.Sub(s.flow.noted) < decode.ProgressEvery {
		return
	}
	s.flow.noted = now
	s.leg.progressed(s.flow.progress(), now)
}
