package orchestrator

import (
	"time"

	"github.com/tandem-router/tandem/orchestrator/observe"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// noteFailed writes into r that an attempt came to no answer.
func noteFailed(r *observe.Record, b *planner.Booking, f *failure, came, began time.Time) {
	reason := ""
	if b.Decision != nil {
		reason = b.Decision.Reason
	}
	r.Failed = append(r.Failed, observe.FailedAttempt{
		Mode: b.Mode.String(), Prefill: string(b.Prefill.ID), Decode: string(b.Decode.ID), Reason: reason,
		At: string(f.at), Phase: string(f.phase), Kind: f.name(), Status: f.answer.status,
		Began: ms(began.Sub(came)), Took: ms(time.Since(began)),
	})
}

// Record returns what is kept of a request, nil when it has not ended or is forgotten. Safe for concurrent
// use.
func (o *Orchestrator) Record(id string) *observe.Record { return o.ring.Find(id) }
