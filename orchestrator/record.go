package orchestrator

import (
	"time"

	"github.com/tandem-router/tandem/internal/capture"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/orchestrator/observe"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// noteFailed records in r that an attempt got no answer.
func noteFailed(r *observe.Record, b *planner.Booking, f *failure, came, began time.Time) {
	reason := ""
	if b.Decision != nil {
		reason = b.Decision.Reason
	}
	r.Failed = append(r.Failed, observe.FailedAttempt{
		Mode: b.Mode.String(), Prefill: string(b.Prefill.ID), Decode: string(b.Decode.ID), Reason: reason,
		At: string(f.at), Phase: string(f.phase), Kind: f.name(), Status: f.reply.status,
		Began: ms(began.Sub(came)), Took: ms(time.Since(began)),
	})
}

// recordPlan writes the plan into the record.
func recordPlan(j *job, b *planner.Booking) {
	j.rec.Mode = modeName(b, j.whole)
	j.rec.Prefill = string(b.Prefill.ID)
	j.rec.Decode = string(b.Decode.ID)
	j.rec.Prompt = j.count
	j.rec.Available = -1
	j.rec.Captured = -1
	j.rec.Delivered = -1
	j.rec.Moved = -1
	j.rec.Whole = "" // an earlier attempt may have set these fields
	d := b.Decision
	if d == nil {
		return
	}
	j.rec.Reason = d.Reason
	j.rec.Blind = d.Blind
	j.rec.Decision = d
	noteWhy(j.rec, j.whole)
	// Without keys for the prompt's blocks, no index can be asked.
	if j.plan.PrefillKeys != nil || j.plan.DecodeKeys != nil {
		j.rec.Available = d.Available
	}
	switch {
	case anyRank(j, b): // the match is of one rank
	case j.req.Uncached:
		j.rec.Captured = 0
	case !d.Guessed:
		j.rec.Captured = d.Matched
	}
	j.m.Decisions.Count(j.rec, d)
}

// anyRank reports whether the engine itself chooses the rank that prefills: vLLM 0.32 ignores
// X-Data-Parallel-Rank on /v1/responses.
func anyRank(j *job, b *planner.Booking) bool {
	return j.req.Kind == openai.Responses && b.Mode == planner.Local && b.Decode.Pinned()
}

// noteWhy adds to the record why the request went whole to one replica.
func noteWhy(rec *observe.Record, why string) {
	if why != "" {
		rec.Reason += "; not split: " + why
	}
}

// countTokens compares three numbers for an answer that ended well: the tokens cached on any replica, the
// tokens that the plan used, and the engine's own number.
func countTokens(j *job, f *failure, split bool) {
	if f != nil {
		return
	}
	m, r := j.m, j.rec
	m.Requests.Tokens.WithLabelValues("prompt").Add(float64(r.Prompt))
	m.Requests.Tokens.WithLabelValues("output").Add(float64(r.Output))
	m.Cache.Observe(r, split)
	m.Demand.Ended(r.Prompt, r.Output, j.plan.Sequences, time.Now())
	m.Requests.Length(r, j.plan.Class.Hint > 0)
	if j.spans.On() {
		j.span.SetAttributes(observe.TruthAttributes(r)...)
	}
}

func modeName(b *planner.Booking, whole string) string {
	switch {
	case b.Mode == planner.Split:
		return "split"
	case whole != "":
		return "unsplit"
	}
	return "local"
}

// servedBy returns what a capture of traffic may contain about a job that has ended well.
func servedBy(j *job) observe.Served {
	s := observe.Served{
		Came: j.start, Model: j.rec.Model, Path: j.path, Session: j.session.id,
		Tenant: j.tenant, Input: j.rec.Prompt, Output: j.rec.Output,
	}
	if j.ids != nil { // otherwise the keys name chunks of text
		s.Keys, s.Block = j.plan.PrefillKeys, j.plan.PrefillBlock
	}
	if j.req != nil {
		c := j.class()
		s.Hints = capture.Asked{Tools: c.Tools, Form: c.Structured, Stops: c.Stops, Expects: c.Hint}
	}
	return s
}
