package orchestrator

import (
	"time"

	"github.com/tandem-router/tandem/decode"
)

// eventFlow is how far a stream has come.
type eventFlow struct {
	events  int           // that were read
	gave    int           // of them, those that went to the client
	blocked time.Duration // for which the client let writes wait
	noted   time.Time     // when the planner was told last
}

// progress is what the planner is told.
func (f *eventFlow) progress() decode.Progress {
	return decode.Progress{Events: f.events, Held: f.blocked}
}

// noteProgress tells that something was read, and now and then how far the stream has come: its engine may
// have become slow.
func (s *eventReader) noteProgress(now time.Time) {
	if s.leg == nil || !s.leg.j.tellsSteps() {
		return
	}
	s.leg.b.DecodeLease.Streamed(now)
	if now.Sub(s.flow.noted) < decode.ProgressEvery {
		return
	}
	s.flow.noted = now
	s.leg.j.planner.Progress(s.leg.b, s.flow.progress(), now)
}

// tellsSteps reports whether the events of the job's stream come as its engine's steps do. A parser of tools
// holds tokens back, unless their ids are asked for.
func (j *job) tellsSteps() bool { return !j.req.Tools || j.want != nil }
