package decode

import (
	"fmt"

	"github.com/tandem-router/tandem/decode/ledger"
	"github.com/tandem-router/tandem/internal/roster"
)

type verdict uint8

const (
	fit verdict = iota
	ill
	otherModel
	avoided
	draining
	tooSmall
	noRoom
)

func (m *member) unfit(q *Query, serves bool) verdict {
	switch {
	case !serves:
		return otherModel
	case !q.Estimate && q.Tokens > m.cache().largest():
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

func (v verdict) explain(m *member, limit int, q *Query) string {
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
func (q *survey) reject(
	m *member, v verdict, a *ledger.Headroom, all *Rejected, excluded *[]Excluded,
) {
	var e Excluded
	need := 0
	if v == noRoom {
		_, need, _ = q.need(m)
		need -= q.inUse(m)
		room := q.rooms.in(m, a, a.Asked(need)-a.Left())
		e.Room = min(max(q.rooms.slotIn(m, a, q.Sequences)-q.Ready, room-q.Ready, MinRetry), maxRetry)
		e.Part = float64(need) / float64(max(m.R.Facts.Blocks, 1))
		all.hold(m, q.Query, q.matches.Tokens(&m.Member))
	}
	all.note(&e, v, m)
	if excluded == nil {
		return
	}
	e.ID, e.Reason = m.R.ID, v.explain(m, e.Limit, q.Query)
	if v == noRoom {
		e.Every = q.rooms.every(m, a, need, q.Sequences)
		e.Reason = fmt.Sprintf("has room for %d blocks, not %d", max(a.Left(), 0), need)
	}
	if v == noRoom && a.Left() >= need && q.rooms.sequences.of(m) > 0 {
		e.Reason = fmt.Sprintf("runs %d sequences at a time, and has as many", q.rooms.sequences.of(m))
	}
	*excluded = append(*excluded, e)
}

func (o *Rejected) note(e *Excluded, v verdict, m *member) {
	switch {
	case v == noRoom:
		o.Full++
		if o.Retry == 0 || e.Room < o.Retry {
			o.Retry = e.Room
		}
	case v == ill || v == avoided || v == draining:
		o.Ill++
	case v == tooSmall:
		o.Small++
		e.Limit = m.cache().largest()
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
