package policies

import (
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/internal/waitline"
)

// dynamoPriority is Dynamo's cost with the queue of its router. Requests wait in the router while every
// prefill replica has more than threshold steps of tokens to compute. A class with tighter goals has a
// stricter priority in this queue, and always goes first.
type dynamoPriority struct {
	dynamo

	threshold float64
}

func defaultDynamoPriority() *dynamoPriority {
	return &dynamoPriority{dynamo: *defaultDynamo(), threshold: 4}
}

func (y *dynamoPriority) params() []Param {
	return append([]Param{{
		"threshold", &y.threshold, "steps of tokens to compute from which on requests wait in the router",
		[]float64{0.5, 1, 2, 4},
	}}, y.dynamo.params()...)
}

// stepTokens is max_num_batched_tokens of a prefill engine, as vLLM has it by default.
const stepTokens = 8192

// prioritized is a policy with the queue of [dynamoPriority].
type prioritized struct {
	*Field

	threshold float64
}

var _ cluster.Forecaster = (*prioritized)(nil)

// Place lets the request wait where no prefill replica is free enough.
func (f *prioritized) Place(q *cluster.Query, now time.Time) (p, d int, room bool) {
	for i := range f.sides[cluster.Prefill] {
		if float64(f.sides[cluster.Prefill][i].Tokens) <= f.threshold*stepTokens {
			return f.Field.Place(q, now)
		}
	}
	return 0, 0, false
}

// RoomIn knows no forecast.
func (f *prioritized) RoomIn(*cluster.Query) waitline.Found { return waitline.Found{} }

// Order puts the tightest goal first.
func (f *prioritized) Order(q *cluster.Query, _ uint32) (o waitline.Order) {
	if q.Class != nil {
		o.Rank = int(q.Class.TTFT.Milliseconds())
	}
	return o
}

// Behind changes nothing.
func (f *prioritized) Behind(*cluster.Query, time.Duration) {}

// FirstBy refuses nothing.
func (f *prioritized) FirstBy(*cluster.Query) time.Duration { return 0 }

// Cost is unknown: no shares are kept.
func (f *prioritized) Cost(*cluster.Query) float64 { return 0 }
