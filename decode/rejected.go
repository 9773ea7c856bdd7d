package decode

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/roster"
)

// Excluded says why a member is no candidate.
type Excluded struct {
	ID     replica.ID
	Reason string
	Limit  int           // the largest prompt in tokens that it ever takes, where Tokens is more; else 0
	Room   time.Duration // when it should have room, where it has none now; else 0
	Every  time.Duration // between two requests like this that find room on it, where it has none; 0 unknown
	// Of all its blocks, what the request would take, where it has no room; above 1 it waits until it is empty.
	Part float64
}

// Rejected sums up the members that are no candidates.
type Rejected struct {
	Full    int           // without room now
	Retry   time.Duration // until the first of those should have room
	Matched int           // the most leading tokens that one of those holds, by an index that is not blind
	Blind   int           // how many of those are blind
	Small   int           // too small for the prompt for good
	Ill     int           // would do, were they not unhealthy, drained or avoided
	Limit   int           // the largest prompt that one of the small takes
}

type verdict uint8

const (
	fit verdict = iota
	ill
	otherModel
	avoided
	draining
	tooSmall
	full
)

func (m *member) unfit(q *Query, serves bool) verdict {
	switch {
	case !serves:
		return otherModel
	case !q.Estimate && q.Tokens > m.largest():
		return tooSmall
	case !m.Healthy:
		return ill
	case m.R.Draining:
		return draining
	case m.Avoided(q.Avoid):
		return avoided
	}
	return fit
}

func (m *member) explain(v verdict, limit int, q *Query) string {
	switch v {
	case ill:
		if m.Reason != "" {
			return m.Reason
		}
		return "unhealthy"
	case otherModel:
		return "does not serve the model"
	case avoided:
		return "failed this request before"
	case draining:
		return roster.Draining
	case tooSmall:
		return fmt.Sprintf("takes prompts of at most %d tokens, not %d", limit, q.Tokens)
	}
	return ""
}

// reject counts m, which is no candidate, and describes it on demand.
func (p *Pool) reject(
	m *member, v verdict, q *survey, a *ledger.Account, all *Rejected, excluded *[]Excluded,
) {
	var e Excluded
	need := 0
	if v == full {
		_, need, _ = m.need(q.Query, &q.answer)
		need -= p.inUse(m, q)
		e.Room = clampRetry(max(p.runSlotIn(m, a, q.Sequences), p.roomIn(m, a, a.Asked(need)-a.Left())) - q.Ready)
		e.Part = float64(need) / float64(max(m.R.Facts.Blocks, 1))
		all.hold(m, q.Query, q.matches.Tokens(&m.Member))
	}
	all.note(&e, v, m)
	if excluded == nil {
		return
	}
	e.ID, e.Reason = m.R.ID, m.explain(v, e.Limit, q.Query)
	if v == full {
		e.Every = p.roomEvery(m, a, need, q.Sequences)
		e.Reason = fmt.Sprintf("has room for %d blocks, not %d", max(a.Left(), 0), need)
	}
	if v == full && a.Left() >= need && p.mostOf(m) > 0 {
		e.Reason = fmt.Sprintf("runs %d sequences at a time, and has as many", p.mostOf(m))
	}
	*excluded = append(*excluded, e)
}

func (o *Rejected) note(e *Excluded, v verdict, m *member) {
	switch {
	case v == full:
		o.Full++
		if o.Retry == 0 || e.Room < o.Retry {
			o.Retry = e.Room
		}
	case v == ill || v == avoided || v == draining:
		o.Ill++
	case v == tooSmall:
		o.Small++
		e.Limit = m.largest()
		o.Limit = max(o.Limit, e.Limit)
	}
}

// hold records how much of the prompt a member without room has cached.
func (o *Rejected) hold(m *member, q *Query, tokens int) {
	if q.Chunk == 0 && m.Blind() {
		o.Blind++
		return
	}
	o.Matched = max(o.Matched, tokens)
}

// largest returns the most prompt tokens that m ever takes: one new token must fit as well.
func (m *member) largest() int {
	limit := math.MaxInt
	if n := m.R.Facts.MaxModelLen; n > 0 {
		limit = n - 1
	}
	return min(limit, m.capacity()-1)
}

// capacity returns the tokens that m holds, as far as it is known.
func (m *member) capacity() int {
	if n := m.R.Facts.Blocks; n > 0 {
		return n * m.blockSize()
	}
	return math.MaxInt
}

// Bookable returns the most tokens that an estimate may book for a prompt of model: within the largest
// context and half of the largest replica. A larger estimate could be wrong by any factor. It would wait
// until a replica is nearly empty, and hold up every request behind it.
func (p *Pool) Bookable(model string) int {
	p.members.Lock()
	defer p.members.Unlock()
	most := 0
	serves := p.members.Serving(model)
	for i, m := range p.members.All {
		if serves[i] {
			most = max(most, min(m.largest(), m.capacity()/2))
		}
	}
	return cmp.Or(most, math.MaxInt)
}
