package decode

import (
	"time"

	"tandem/scoring"
)

// inPieces reports whether m may compute a prompt in pieces: it keeps what it has computed, where the next
// piece goes, too.
func (p *Pool) inPieces(q *Query, m *member) bool {
	f := &m.R.Facts
	return q.Pieces && p.settings.Piece > 0 && f.PrefixCaching && f.BlockSize > 0
}

// priceInPieces prices those candidates that would get the prompt in pieces.
func (p *Pool) priceInPieces(cs []Candidate, q *Query, now time.Time) {
	for i := range cs {
		c := &cs[i]
		l, m := &c.Local, c.member
		if !p.inPieces(q, m) {
			continue
		}
		if n := scoring.Pieces(l.Warm, p.pieceOf(m)); n > 1 {
			l.Piece, l.Between = l.Warm/float64(n), p.between(m, l.Warm)
		}
		var longer int
		l.Wait, longer = m.ledger.local.before(l.Took(), now)
		l.Wait += m.remote.Work.Seconds()
		l.Delayed = m.ledger.inbound.held(l, now) + float64(m.remote.Arriving)*l.Longest()/2 +
			float64(longer)*l.Took()
	}
}

// before returns the seconds until those are done that go before a prompt which takes so many seconds, and
// how many it goes before.
func (w *localPrefills) before(lasts float64, now time.Time) (wait float64, longer int) {
	for i, l := range w.leases {
		left := l.prefill.predicted.Seconds()
		switch {
		case l.pieces.on && left > lasts:
			longer++
			left = 0
		case i == 0:
			left = max(0, left-now.Sub(w.since).Seconds())
		}
		wait += left
	}
	return wait, longer
}

// progress notes that the first pieces of l are done, so that so much is left of it.
func (w *localPrefills) progress(l *Lease, left time.Duration, now time.Time) {
	w.work += left - l.prefill.predicted
	l.prefill.predicted = left
	if w.leases[0] == l {
		w.since = now
	}
}

// held returns the seconds that all of them together wait for a piece of a prompt: those who need a place in
// a step while it is computed, half of one each.
func (in inboundKV) held(local *scoring.Local, now time.Time) float64 {
	sum := 0.0
	for _, l := range in {
		if l.needs(local.Wait, now) < local.Wait+local.Took() {
			sum += local.Longest() / 2
		}
	}
	return sum
}

// blocksFor returns for how long m lets no other request in, since it computes prompts itself: those in
// pieces for one of them.
func (m *member) blocksFor(now time.Time, piece float64) time.Duration {
	if piece == 0 {
		return m.localWait(now)
	}
	wait, longer := m.ledger.local.before(0, now)
	if longer > 0 {
		wait += piece
	}
	return seconds(wait) + m.remote.Work
}
