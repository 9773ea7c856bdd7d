package decode

import (
	"math"
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
)

// This file computes the room of a member, from its account and from learned values.

// headroomNow computes the headroom of m. The members' mean usage is needed only if m's own usage is
// unknown.
func (p *Pool) headroomNow(m *member, now time.Time) ledger.Headroom {
	usage, mean := m.load.Read(now, p.settings.LoadTTL).Usage, 0.0
	if math.IsNaN(usage) {
		mean = p.read(now).usage
	}
	return p.headroom(m, usage, mean)
}

// headroom computes the headroom of m by its reported usage, NaN if its report is too old. meanUsage is the
// mean usage of members, NaN if none reports: it replaces an unknown usage.
func (p *Pool) headroom(m *member, usage, meanUsage float64) ledger.Headroom {
	r := ledger.Room{
		Capacity: m.R.Facts.Blocks, Margin: p.settings.Margin, Usage: usage, MeanUsage: meanUsage,
	}
	if m.Others.Count > 0 { // each is assumed to be half done
		r.OthersGrow = m.Others.Count * blocksOf(p.learned.lengths.Usual()/2, m.cache().blockSize())
	}
	return m.account.Headroom(r, &m.remote)
}

// hasRoom reports whether the engine has room for all its requests, as far as is known.
func (p *Pool) hasRoom(m *member, now time.Time) bool {
	a := p.headroom(m, m.load.Read(now, p.settings.LoadTTL).Usage, math.NaN())
	return a.Capacity == 0 || a.Free >= 0
}

// admits reports whether m may book a request of so many blocks, whose prompt can be ready after ready. at
// is the present time of the ledger.
func (p *Pool) admits(m *member, a *ledger.Headroom, blocks int, ready time.Duration, at int64) bool {
	request := ledger.Request{Blocks: blocks, Ready: ready, Now: at}
	return m.account.Admits(a, request, &m.remote, func() float64 { return p.life(m, a) })
}

// saturated reports whether c may not get further blocks. This is so if, when the prompt is ready, requests
// that still wait for their blocks will hold more than half of the room, for longer than an answer takes. It
// is false if c would compute the prompt later than its blocks could arrive.
func (p *Pool) saturated(c *Candidate, a *ledger.Headroom, ready time.Duration) bool {
	m := c.member
	if c.Inbound <= 0 || a.Capacity == 0 || !m.account.Saturated(a, &m.remote, c.Inbound) {
		return false
	}
	return c.Inbound > p.life(m, a) && c.Local.Wait+c.Local.Warm <= ready.Seconds()+c.Inbound
}

// roomIn returns how long it should take until so many blocks have come free. Running requests are assumed
// to end evenly spread over an answer's usual time, as many at a time as have room.
func (p *Pool) roomIn(m *member, a *ledger.Headroom, blocks int) time.Duration {
	if blocks <= 0 {
		return 0
	}
	return a.RoomIn(blocks, p.life(m, a))
}

// roomEvery returns the time between two similar requests that find room on m, which is full. Each takes so
// many blocks and runs so many sequences.
func (p *Pool) roomEvery(m *member, a *ledger.Headroom, blocks, sequences int) time.Duration {
	every := p.roomIn(m, a, a.Asked(blocks))
	if most := p.mostOf(m); most > 0 {
		every = max(every, seconds(p.slotsIn(m, a, atMost(sequences, most), most)))
	}
	return every
}

// The bounds of when it is worth asking again for room.
const (
	MinRetry = 10 * time.Millisecond
	maxRetry = 10 * time.Second
)

func clampRetry(d time.Duration) time.Duration { return min(max(d, MinRetry), maxRetry) }

// means is the load of the members that reported lately. It replaces the unknown load of others, because
// unknown is not idle.
type means struct {
	usage    float64 // share in use or promised, NaN without a report
	others   float64 // requests of unknown clients
	peersAge float64 // seconds since the reports of other routers
}

// read fills p.standings for all members, and returns the means.
func (p *Pool) read(now time.Time) means {
	p.standings = p.standings[:0]
	var usage, others float64
	var users, reporters int
	for _, m := range p.members.All {
		s := standing{Reading: m.load.Read(now, p.settings.LoadTTL)}
		if !math.IsNaN(s.Usage) {
			s.Headroom = p.headroom(m, s.Usage, 0)
			usage += s.share(s.Used)
			users++
		}
		if s.Running >= 0 {
			others += float64(m.Others.Count)
			reporters++
		}
		p.standings = append(p.standings, s)
	}
	mean := means{
		usage: usage / float64(users), others: others / float64(max(reporters, 1)),
		peersAge: p.peers.Age(now).Seconds(),
	}
	for i, m := range p.members.All {
		if s := &p.standings[i]; math.IsNaN(s.Usage) {
			s.Headroom = p.headroom(m, s.Usage, mean.usage)
		}
	}
	return mean
}

// share returns the share of the capacity that so many blocks are, or the reported share if the capacity is
// unknown.
func (s *standing) share(blocks int) float64 {
	if s.Capacity == 0 {
		return s.Usage
	}
	return min(1, float64(blocks)/float64(s.Capacity))
}
