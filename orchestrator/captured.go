package orchestrator

import (
	"github.com/tandem-router/tandem/internal/capture"
	"github.com/tandem-router/tandem/orchestrator/observe"
)

// served is what a capture of traffic may know of a job that has ended well.
func (j *job) served() observe.Served {
	s := observe.Served{
		Came: j.start, Model: j.rec.Model, Path: j.path, Session: j.r.Header.Get("X-Session-Id"),
		Tenant: j.tenant, Input: j.rec.Prompt, Output: j.rec.Output,
	}
	if j.ids != nil { // else the keys are of chunks of text
		s.Keys = j.plan.PrefillKeys
	}
	if j.req != nil {
		c := j.class()
		s.Hints = capture.Asked{Tools: c.Tools, Form: c.Structured, Stops: c.Stops, Expects: c.Hint}
	}
	return s
}
