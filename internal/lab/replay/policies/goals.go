package policies

import (
	"math"
	"time"

	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// byGoals is llm-d's optimizer of goals for two pools: its predicted-latency scorer, with the exact speeds of
// the engines in the place of a trained model, and without random exploration. A replica has headroom if the
// predicted times keep the request's goals, and on a decode replica the smallest goal of the requests that
// run there. byGoals takes a replica with the least or the most headroom. If no replica has headroom, it
// takes the replica with the smallest deficit. Replicas with enough of the prompt in their cache come first.
type byGoals struct{ buffer, most, gate, local float64 }

func defaultByGoals() *byGoals { return &byGoals{buffer: 0.9, gate: 0.8, local: 16} }

func (x *byGoals) params() []Param {
	return []Param{
		{"buffer", &x.buffer, "share of a goal that predictions must keep", []float64{0.8, 0.9, 1}},
		{"most", &x.most, "1: prefer the most headroom, 0: the least", []float64{0, 1}},
		{"gate", &x.gate, "prefer replicas with at least this share of the prompt in their cache", nil},
		{"local", &x.local, "below this many uncached tokens, decode prefills itself", nil},
	}
}

// Pick chooses the decode replica by the goal for TPOT, and the prefill replica by the goal for TTFT.
func (x *byGoals) Pick(q *Query, ps, ds []Replica) (p, d int) {
	d = x.best(q, ds, func(r *Replica) float64 {
		return x.buffer*min(orNever(q.TPOT), r.leastGoal()) - r.pace(q.Tokens)
	})
	if float64(q.Tokens-ds[d].Matched) < x.local {
		return -1, d
	}
	return x.best(q, ps, func(r *Replica) float64 {
		own := r.Speed.Prefill(q.Tokens-r.Matched, r.Matched)
		return x.buffer*orNever(q.TTFT) - r.Work.Seconds() - own
	}), d
}

// best returns the replica with the least or the most headroom, or else with the smallest deficit.
func (x *byGoals) best(q *Query, rs []Replica, headroom func(*Replica) float64) int {
	gated := false
	for i := range rs {
		gated = gated || x.cached(q, &rs[i])
	}
	return least(q, rs, func(r *Replica) float64 {
		room := headroom(r)
		cost := room
		switch {
		case gated && !x.cached(q, r):
			return math.MaxFloat64
		case room < 0:
			return 1e6 - room
		case x.most > 0 || room > 1e6: // without a goal
			cost = -room
		}
		return cost
	})
}

func (x *byGoals) cached(q *Query, r *Replica) bool {
	return float64(r.Matched) >= x.gate*float64(q.Tokens)
}

// orNever returns a goal in seconds. Without a goal the result is longer than any time.
func orNever(goal time.Duration) float64 {
	if goal == 0 {
		return 1e9
	}
	return goal.Seconds()
}

// pace returns the seconds of a step with one more request, whose prompt has this number of tokens.
func (r *Replica) pace(tokens int) float64 {
	return r.Host.Seconds() + r.Speed.Step(r.Requests+1, r.Prompts+tokens)
}

// leastGoal returns the smallest goal for TPOT, in seconds, of the requests that run on r.
func (r *Replica) leastGoal() float64 {
	goal := orNever(0)
	for tpot := range r.goals {
		goal = min(goal, tpot.Seconds())
	}
	return goal
}

// promise adds more, which may be negative, to the requests with the goals of q that run on r.
func (r *Replica) promise(q *cluster.Query, more int) {
	if q.Class == nil {
		return
	}
	if r.goals == nil {
		r.goals = map[time.Duration]int{}
	}
	if r.goals[q.Class.TPOT] += more; r.goals[q.Class.TPOT] == 0 {
		delete(r.goals, q.Class.TPOT)
	}
}
