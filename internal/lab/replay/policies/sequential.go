package policies

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/roster"
	"github.com/tandem-router/tandem/prefill"
	"github.com/tandem-router/tandem/scoring"
)

// Order says how the two sides of a plan are chosen. The terms are the same in all three.
type Order uint8

// The orders. In sequence, one side is chosen by its own terms alone, as if the other did not exist. Then
// the planner chooses the other side, with every term, transfer included. The second step also compares
// Local(d), as always.
const (
	Joint Order = iota
	PrefillFirst
	DecodeFirst
)

// sequence chooses the first side.
type sequence struct {
	order    Order
	rnd      *rand.Rand // of ties
	prefills []prefill.Candidate
	decodes  []decode.Candidate
	depth    []int32
	costs    []float64
	others   []replica.ID
}

// first leaves the planner only the best replica of one side: all others of this side are avoided.
func (t *Tandem) first(b *booked, q *cluster.Query, now time.Time) {
	switch s := &t.sequence; {
	case t.sequence.order == PrefillFirst && b.req.SplitOK:
		b.req.AvoidPrefill = s.but(t.members.ids[cluster.Prefill], t.bestPrefill(q, now))
	case t.sequence.order == DecodeFirst:
		b.req.AvoidDecode = s.but(t.members.ids[cluster.Decode], t.bestDecode(q, now))
	}
}

// bestPrefill is the index of the prefill replica with the least cost of its own, -1 without one.
func (t *Tandem) bestPrefill(q *cluster.Query, now time.Time) int {
	s := &t.sequence
	s.depth = sized(s.depth, t.prefill.Holders())
	t.prefill.Match(roster.Prompt{Keys: q.Keys, Chunk: q.Chunk}, s.depth)
	query := prefill.Query{
		Model: t.asks.Model, Chunk: q.Chunk, Block: t.asks.PrefillBlock, Tokens: q.Tokens, Depth: s.depth,
	}
	all, view := t.prefill.Candidates(&query, now, s.prefills[:0], nil)
	s.prefills, s.costs = all, s.costs[:0]
	model := t.policy.Weights.Model(0, 0) // the side's own terms are without a transfer
	for i := range all {
		s.costs = append(s.costs, model.Prefill(&all[i].Prefill).Total())
	}
	i := t.draw(s.costs)
	if i < 0 {
		return -1
	}
	return t.members.at[cluster.Prefill][view.Replicas[all[i].Slot].ID]
}

// bestDecode is the same for the decode side.
func (t *Tandem) bestDecode(q *cluster.Query, now time.Time) int {
	s := &t.sequence
	s.depth = sized(s.depth, t.decode.Holders())
	t.decode.Match(roster.Prompt{Keys: q.Keys, Chunk: q.Chunk}, s.depth)
	query := decode.Query{
		Model: t.asks.Model, Chunk: q.Chunk, Tokens: q.Tokens, Sequences: 1,
		Class: classOf(q), Keys: q.Keys, Block: t.asks.DecodeBlock, Depth: s.depth,
	}
	all, view, _ := t.decode.Candidates(&query, now, s.decodes[:0], nil)
	s.decodes, s.costs = all, s.costs[:0]
	model := t.policy.Weights.Model(0, 0)
	for i := range all {
		s.costs = append(s.costs, model.Decode(&all[i].Decode).Total())
	}
	i := t.draw(s.costs)
	if i < 0 {
		return -1
	}
	return t.members.at[cluster.Decode][view.Replicas[all[i].Slot].ID]
}

// draw takes at random one of the costs that tie with the least, by production's rule for ties; -1 without
// costs.
func (t *Tandem) draw(costs []float64) int {
	least := math.Inf(1)
	for _, c := range costs {
		least = min(least, c)
	}
	limit := least + max(t.policy.TieAbsolute.Seconds(), t.policy.TieRelative*math.Abs(least))
	if t.policy.Weights.Units == scoring.InRaw {
		limit = least
	}
	chosen, ties := -1, 0
	for i, c := range costs {
		if c <= limit {
			if ties++; t.sequence.rnd.IntN(ties) == 0 {
				chosen = i
			}
		}
	}
	return chosen
}

// but lists all replicas except the one at an index. For an index out of range it lists none, so that the
// planner gives the reason.
func (s *sequence) but(ids []replica.ID, at int) []replica.ID {
	if at < 0 {
		return nil
	}
	s.others = append(append(s.others[:0], ids[:at]...), ids[at+1:]...)
	return s.others
}

func sized(depth []int32, n int) []int32 {
	if cap(depth) < n {
		return make([]int32, n)
	}
	return depth[:n]
}
