package decode

import (
	"time"

	"github.com/tandem-router/tandem/decode/turns"
	"github.com/tandem-router/tandem/internal/estimate"
)

// inPieces reports whether m may compute a prompt in pieces: m caches prefixes, and the next piece goes to
// the same replica.
func (p *Pool) inPieces(q *Query, m *member) bool {
	f := &m.R.Facts
	return q.Pieces && p.settings.Piece > 0 && f.PrefixCaching && f.BlockSize > 0
}

// priceInPieces prices the candidates that would get the prompt in pieces. peersAge is as in [survey].
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
		l.Wait, longer = m.local.before(p.turnOf(now, seconds(l.Took())), l.Took(), now)
		l.Wait += m.remote.Rho * peersAge // as other routers usually book
		// A request whose KV blocks arrive meanwhile needs a place in a step, and waits for half of a piece.
		arriving := m.account.Needs(l.Wait, l.Wait+l.Took(), p.ledger.At(now))
		l.Delayed = float64(arriving)*l.Longest()/2 + float64(m.remote.Arriving)*l.Longest()/2 +
			float64(longer)*l.Took()
	}
}

// passOver bounds overtaking: shorter prompts may overtake a prompt until it has waited passOver times its
// remaining time. With 1, a prompt of 0.3 s waited 10 s behind prompts of 5 s that had come earlier, and all
// were late.
const passOver = 2

// turnOf returns the turn of a prompt by its arrival and its remaining time. A prompt keeps its turn from one
// piece to the next. Otherwise a woken prompt could stand behind prompts that have not asked since, and
// nothing would wake them. If an evicted prefix moves the turn, [Lease.updatePrefix] wakes the next prompt.
func (p *Pool) turnOf(came time.Time, left time.Duration) int64 {
	return p.ledger.At(came.Add(passOver * left))
}

// pieceOf returns the longest piece for m now, in seconds.
func (p *Pool) pieceOf(m *member, speed *estimate.Speed) float64 {
	most := p.settings.Piece.Seconds()
	if m.decoding() == 0 {
		return most
	}
	longer, _ := m.besidePrompt(speed) // streams stand still for that, too
	return max(most-longer, most/2)
}

// decoding returns the number of sequences of m, sent or on their way, without the sequences whose prompts m
// still has to compute.
func (m *member) decoding() int {
	g, e := &m.account, &m.remote
	return g.Answering + g.Arriving + e.Decoding() + e.Arriving + m.Others.Count
}

// leftOf returns the time until the whole prompt of l, which is sent in pieces, is computed.
func (p *Pool) leftOf(l *Lease, now time.Time) time.Duration {
	speed, from := p.learned.speed(l.member), l.computed()
	rest := speed.Prefill(l.entry.Tokens-from, from)
	cut := p.cut(l.member, &speed, rest, l.entry.Tokens-from, now)
	return seconds(rest + cut.between - cut.shared)
}

// cut is how a prompt is computed beside running requests.
type cut struct {
	pieces  int
	between float64 // seconds of decode steps between its pieces and in its own steps
	shared  float64 // seconds that it does not add to the work of other prompts there
}

// cut returns how m computes a prompt of so many uncached tokens and seconds of work. An engine that cuts
// prompts itself gets the prompt once.
func (p *Pool) cut(m *member, speed *estimate.Speed, work float64, tokens int, now time.Time) cut {
	c := cut{pieces: turns.Pieces(work, p.pieceOf(m, speed)), shared: speed.Shared(tokens)}
	longer, wait := m.besidePrompt(speed)
	c.between = float64(c.pieces)*longer + wait
	if c.pieces == 1 {
		c.shared += c.between * estimate.SharedPart(tokens)
		return c
	}
	if !m.learned.CutsPrompts(now) {
		c.between += float64(c.pieces-1) * (2*wait + turns.Hops.Seconds())
	}
	return c
}
