package orchestrator

import (
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/orchestrator/observe"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// recordPlan writes the plan into the record.
func (j *job) recordPlan(b *planner.Booking) {
	j.rec.Mode = modeName(b, j.whole)
	j.rec.Prefill = string(b.Prefill.ID)
	j.rec.Decode = string(b.Decode.ID)
	j.rec.Prompt = j.count
	j.rec.Available = -1
	j.rec.Captured = -1
	j.rec.Delivered = -1
	j.rec.Moved = -1
	j.rec.Whole = "" // an attempt before may have set them
	d := b.Decision
	if d == nil {
		return
	}
	j.rec.Reason = d.Reason
	j.rec.Blind = d.Blind
	j.rec.Decision = d
	j.noteWhy(j.whole)
	if j.named() {
		j.rec.Available = d.Available
	}
	switch {
	case j.anyRank(b): // the match is of one rank
	case j.req.Uncached:
		j.rec.Captured = 0
	case !d.Guessed:
		j.rec.Captured = d.Matched
	}
	j.m.Decisions.Count(j.rec, d)
}

// anyRank reports whether the engine itself chooses the rank that prefills: vLLM 0.32 does not look at
// X-Data-Parallel-Rank on /v1/responses.
func (j *job) anyRank(b *planner.Booking) bool {
	return j.req.Kind == openai.Responses && b.Mode == planner.Local && b.Decode.Pinned()
}

// noteWhy adds to the record why the request went whole to one replica.
func (j *job) noteWhy(why string) {
	if why != "" {
		j.rec.Reason += "; not split: " + why
	}
}

// named reports whether the prompt's blocks have keys, without which no index can be asked.
func (j *job) named() bool { return j.plan.PrefillKeys != nil || j.plan.DecodeKeys != nil }

func modeName(b *planner.Booking, whole string) string {
	switch {
	case b.Mode == planner.Split:
		return "split"
	case whole != "":
		return "unsplit"
	}
	return "local"
}

// countTokens compares what was cached somewhere, what the plan made of it and what the engine says it got,
// for an answer that ended well.
func (j *job) countTokens(a *answer, f *failure) {
	if f != nil {
		return
	}
	m, r := j.m, j.rec
	m.Requests.Tokens.WithLabelValues("prompt").Add(float64(r.Prompt))
	m.Requests.Tokens.WithLabelValues("output").Add(float64(r.Output))
	m.Cache.Observe(r, a.split())
	m.Requests.Length(r, j.plan.Class.Hint > 0)
	if j.spans.On() {
		j.span.SetAttributes(observe.TruthAttributes(r)...)
	}
}
