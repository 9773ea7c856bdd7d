package decode

import (
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
	"github.com/tandem-router/tandem/decode/turns"
	"github.com/tandem-router/tandem/internal/estimate"
)

// cutter cuts local prompts into pieces and gives them their turns: see [Lease.Next]. It holds no prompts.
type cutter struct {
	settings *Settings
	ledger   *ledger.Ledger
	learned  *lessons
	rooms    *rooms
}

// cuts reports whether m may compute the prompt of q in pieces: m caches prefixes, and the next piece goes to
// the same replica.
func (c *cutter) cuts(q *Query, m *member) bool {
	f := &m.R.Facts
	return q.Pieces && c.settings.Piece > 0 && f.PrefixCaching && f.BlockSize > 0
}

// passOver bounds overtaking: shorter prompts may overtake a prompt until it has waited passOver times its
// remaining time. With 1, a prompt of 0.3 s waited 10 s behind prompts of 5 s that had come earlier, and all
// were late.
const passOver = 2

// turnOf returns the turn of a prompt by its arrival and its remaining time. A prompt keeps its turn from one
// piece to the next. Otherwise a woken prompt could stand behind prompts that have not asked since, and
// nothing would wake them. If an evicted prefix moves the turn, [cutter.see] wakes the next prompt.
func (c *cutter) turnOf(came time.Time, left time.Duration) int64 {
	return c.ledger.At(came.Add(passOver * left))
}

// pieceOf returns the longest piece for m now, in seconds.
func (c *cutter) pieceOf(m *member, speed *estimate.Speed) float64 {
	most := c.settings.Piece.Seconds()
	if m.decoding() == 0 {
		return most
	}
	longer, _ := m.besidePrompt(speed) // streams stand still for that, too
	return max(most-longer, most/2)
}

// leftOf returns the time until m has computed the whole of x, which is sent in pieces.
func (c *cutter) leftOf(m *member, x *turns.Prompt, now time.Time) time.Duration {
	speed, from := c.learned.speed(m), x.Prefix.Tokens()
	rest := speed.Prefill(x.Tokens-from, from)
	cut := c.cut(m, &speed, rest, x.Tokens-from, now)
	return seconds(rest + cut.between - cut.shared)
}

// cut is how a prompt is computed beside running requests.
type cut struct {
	pieces  int
	between float64 // seconds of decode steps between its pieces and in its own steps
	shared  float64 // seconds that it does not add to the work of other prompts there
}

// pull adds the piece that pulls a beginning of the prompt.
func (is *cut) pull(longer, wait float64) { is.between += longer + 2*wait + turns.Hops.Seconds() }

// cut returns how m computes a prompt of so many uncached tokens and seconds of work. An engine that cuts
// prompts itself gets the prompt once.
func (c *cutter) cut(m *member, speed *estimate.Speed, work float64, tokens int, now time.Time) cut {
	is := cut{pieces: turns.Pieces(work, c.pieceOf(m, speed)), shared: speed.Shared(tokens)}
	longer, wait := m.besidePrompt(speed)
	is.between = float64(is.pieces)*longer + wait
	if is.pieces == 1 {
		is.shared += is.between * estimate.SharedPart(tokens)
		return is
	}
	if !m.learned.CutsPrompts(now) {
		is.between += float64(is.pieces-1) * (2*wait + turns.Hops.Seconds())
	}
	return is
}
