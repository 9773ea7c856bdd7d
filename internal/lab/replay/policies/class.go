package policies

import (
	"hash/fnv"
	"time"

	"github.com/tandem-router/tandem/internal/classes"
	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/scoring"
)

// classOf returns the class of a request by which the production router predicts the answer's length.
func classOf(q *cluster.Query) estimate.Class {
	a := &q.Asked
	return estimate.Class{
		Tenant: short(a.Tenant), API: uint8(short(a.API)), Tools: a.Tools, Structured: a.Form, Stops: a.Stops,
		Hint: a.Expects,
	}
}

// short is a name as a number, 0 for none.
func short(name string) uint32 {
	if name == "" {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return max(1, h.Sum32())
}

// goalsOf returns the goals of a request; none where t does not know of classes.
func (t *Tandem) goalsOf(q *cluster.Query) scoring.Goals {
	if !t.goals || q.Class == nil {
		return scoring.Goals{}
	}
	return scoring.Goals{TTFT: q.Class.TTFT, TPOT: q.Class.TPOT}
}

// FirstBy returns when the first token of a request is too late.
func (t *Tandem) FirstBy(q *cluster.Query) time.Duration {
	limit, refuse := 0.0, float64(classes.TooLate)
	if t.tuned != nil {
		limit, refuse = t.tuned.Limit, t.tuned.Refuse
	}
	by := time.Duration(limit * float64(time.Second))
	if goal := t.goalsOf(q).TTFT; goal > 0 && refuse > 0 && t.requestOf(q).retry.tries == 0 {
		if own := time.Duration(refuse * float64(goal)); by == 0 || own < by {
			by = own
		}
	}
	return by
}
