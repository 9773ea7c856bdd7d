package decode

import (
	"math"
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
)

// This file is how much room a member has, by its book and by what is learned of it.

// accountNow works out the headroom of m. What members use on average is asked only where it is not known of
// m itself.
func (p *Pool) accountNow(m *member, now time.Time) ledger.Account {
	usage, mean := m.load.Read(now, p.settings.LoadTTL).Usage, 0.0
	if math.IsNaN(usage) {
		mean = p.read(now).usage
	}
	return p.account(m, usage, mean)
}

// account works out the headroom of m by the usage that it reports, NaN where its report is too old.
// meanUsage is the share that members use on average, NaN when none reports: it stands for that then.
func (p *Pool) account(m *member, usage, meanUsage float64) ledger.Account {
	r := ledger.Room{
		Capacity: m.R.Facts.Blocks, Margin: p.settings.Margin, Usage: usage, MeanUsage: meanUsage,
	}
	if m.others.Count > 0 { // each is assumed to be half done
		r.OthersGrow = m.others.Count * blocksOf(p.lengths.Usual()/2, m.blockSize())
	}
	return m.book.Account(r, &m.remote)
}

// hasRoom reports whether the engine has room for all its requests, as far as is known.
func (p *Pool) hasRoom(m *member, now time.Time) bool {
	a := p.account(m, m.load.Read(now, p.settings.LoadTTL).Usage, math.NaN())
	return a.Capacity == 0 || a.Free >= 0
}

// admits reports whether a request of so many blocks, whose prompt can be there when ready has passed, may be
// booked on m. at is now, as the ledger has it.
func (p *Pool) admits(m *member, a *ledger.Account, blocks int, ready time.Duration, at int64) bool {
	ask := ledger.Ask{Blocks: blocks, Ready: ready, Now: at}
	return m.book.Admits(a, ask, &m.remote, func() float64 { return p.life(m, a) })
}

// saturated reports whether c may not be sent other blocks: when the prompt is ready, those who still wait
// for theirs hold more of the room than they may, and they will wait for longer than an answer takes. It is
// false where c would compute the prompt later than its blocks could come.
func (p *Pool) saturated(c *Candidate, a *ledger.Account, ready time.Duration) bool {
	m := c.member
	if c.Inbound <= 0 || a.Capacity == 0 || !m.book.Saturated(a, &m.remote, c.Inbound) {
		return false
	}
	return c.Inbound > p.life(m, a) && c.Local.Wait+c.Local.Warm <= ready.Seconds()+c.Inbound
}

// roomIn returns how long it should take until so many blocks have come free: requests there end after an
// answer's usual time, evenly spread, as many at a time as have room.
func (p *Pool) roomIn(m *member, a *ledger.Account, blocks int) time.Duration {
	if blocks <= 0 {
		return 0
	}
	return a.RoomIn(blocks, p.life(m, a))
}

// roomEvery returns how long it should take m, which is full, from room for one request until room for the
// next, where each takes so many blocks and runs so many sequences.
func (p *Pool) roomEvery(m *member, a *ledger.Account, blocks, sequences int) time.Duration {
	every := p.roomIn(m, a, a.Asked(blocks))
	if most := p.mostOf(m); most > 0 {
		every = max(every, seconds(p.slotsIn(m, a, atMost(sequences, most), most)))
	}
	return every
}

// life is the usual seconds of an answer on m, which computes prompts meanwhile.
func (p *Pool) life(m *member, a *ledger.Account) float64 {
	batch := m.batch()
	if most := p.mostOf(m); most > 0 {
		batch = min(batch, most)
	}
	tokens := max(a.Used*m.blockSize(), int(m.reads(float64(batch)))) // promised blocks included
	return float64(p.lengths.Usual()) * p.speed(m).Step(batch, tokens) * m.learned.PerToken()
}

const (
	minRetry = 10 * time.Millisecond
	maxRetry = 10 * time.Second
)

func clampRetry(d time.Duration) time.Duration { return min(max(d, minRetry), maxRetry) }
