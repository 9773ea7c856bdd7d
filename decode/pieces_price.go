package decode

import (
	"math"
	"time"

	"github.com/tandem-router/tandem/internal/roster"
	"github.com/tandem-router/tandem/scoring"
)

// inPieces reports whether m may compute a prompt in pieces: m caches prefixes, and the next piece goes to
// the same replica.
func (p *Pool) inPieces(q *Query, m *member) bool {
	f := &m.R.Facts
	return q.Pieces && p.settings.Piece > 0 && f.PrefixCaching && f.BlockSize > 0
}

// priceInPieces prices the candidates that would get the prompt in pieces. peersAge is as in [means].
func (p *Pool) priceInPieces(cs []Candidate, q *Query, peersAge float64, now time.Time) {
	for i := range cs {
		c := &cs[i]
		l, m := &c.Local, c.member
		if !p.inPieces(q, m) {
			continue
		}
		cut := p.cut(m, &c.speed, l.Warm, q.Tokens-c.Expected, now)
		if l.Between, c.shared = cut.between, cut.shared; cut.pieces > 1 {
			l.Piece = l.Warm / float64(cut.pieces)
		}
		var longer int
		l.Wait, longer = m.before(p.turnOf(now, seconds(l.Took())), l.Took(), now)
		l.Wait += m.remote.Rho * peersAge // as other routers usually book
		l.Delayed = m.held(l, p.ledger.At(now)) + float64(m.remote.Arriving)*l.Longest()/2 +
			float64(longer)*l.Took()
	}
}

// before returns the seconds until all prompts are done that go before a local prompt with this turn, of all
// routers. lasts is the prompt's own time. longer is how many prompts it overtakes.
func (m *member) before(due int64, lasts float64, now time.Time) (wait float64, longer int) {
	if m.prefillsNothing() {
		return 0, 0
	}
	e, front := &m.remote, m.front()
	longer, later := m.turns.After(due)
	work := m.turns.Work() - later
	if first := m.turns.Head(); first != nil && first.On && first.Due > due {
		front.Work = 0
	}
	first, others := e.First, e.Work
	if e.Pieces > 0 && e.PiecesWork.Seconds() > lasts*float64(e.Pieces) { // as they are on average
		longer += e.Pieces
		if others -= e.PiecesWork; others+first.Ran <= 0 {
			first, others = roster.Running{}, 0
		}
	}
	return first.Left(work, others, front, now).Seconds(), longer
}

// held returns the total wait of requests whose KV blocks arrive during a local prefill in pieces: each
// needs a place in a step, and waits for half of a piece.
func (m *member) held(local *scoring.Local, now int64) float64 {
	return float64(m.book.Needs(local.Wait, local.Wait+local.Took(), now)) * local.Longest() / 2
}

// blocksFor returns how long m admits no other request because it computes prompts itself. Prompts in pieces
// count as one piece.
func (m *member) blocksFor(now time.Time, piece float64) time.Duration {
	if piece == 0 {
		return m.localWait(now)
	}
	wait, longer := m.before(math.MinInt64, 0, now)
	if longer > 0 {
		wait += piece
	}
	return seconds(wait)
}
