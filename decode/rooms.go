package decode

import (
	"math"
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
	"github.com/tandem-router/tandem/internal/replica"
)

// rooms predicts the room of members, from their accounts and from learned values.
type rooms struct {
	settings  *Settings
	learned   *lessons
	sequences sequences
	standings []standing // of all members, scratch of read
}

// standing is what a member reports and has promised at one moment, for any query.
type standing struct {
	replica.Reading
	ledger.Headroom
}

// headroomNow computes the headroom of m. The mean usage of all members is needed only if m's own usage is
// unknown.
func (r *rooms) headroomNow(m *member, all []*member, now time.Time) ledger.Headroom {
	usage, mean := m.load.Read(now, r.settings.LoadTTL).Usage, 0.0
	if math.IsNaN(usage) {
		mean = r.read(all, now).usage
	}
	return r.headroom(m, usage, mean)
}

// headroom computes the headroom of m by its reported usage, NaN if its report is too old. meanUsage is the
// mean usage of members, NaN if none reports: it replaces an unknown usage.
func (r *rooms) headroom(m *member, usage, meanUsage float64) ledger.Headroom {
	room := ledger.Room{
		Capacity: m.R.Facts.Blocks, Margin: r.settings.Margin, Usage: usage, MeanUsage: meanUsage,
	}
	if m.Others.Count > 0 { // each is assumed to be half done
		room.OthersGrow = m.Others.Count * blocksOf(r.learned.lengths.Usual()/2, m.cache().blockSize())
	}
	return m.account.Headroom(room, &m.remote)
}

// enough reports whether the engine has room for all its requests, as far as is known.
func (r *rooms) enough(m *member, now time.Time) bool {
	a := r.headroom(m, m.load.Read(now, r.settings.LoadTTL).Usage, math.NaN())
	return a.Capacity == 0 || a.Free >= 0
}

// admits reports whether m may book a request of so many blocks, whose prompt can be ready after ready. at
// is the present time of the ledger.
func (r *rooms) admits(m *member, a *ledger.Headroom, blocks int, ready time.Duration, at int64) bool {
	request := ledger.Request{Blocks: blocks, Ready: ready, Now: at}
	return m.account.Admits(a, request, &m.remote, func() float64 { return r.life(m, a) })
}

// saturated reports whether c may not get further blocks. This is so if, when the prompt is ready, requests
// that still wait for their blocks will hold more than half of the room, for longer than an answer takes. It
// is false if c would compute the prompt later than its blocks could arrive.
func (r *rooms) saturated(c *Candidate, a *ledger.Headroom, ready time.Duration) bool {
	m := c.member
	if c.Inbound <= 0 || a.Capacity == 0 || !m.account.Saturated(a, &m.remote, c.Inbound) {
		return false
	}
	return c.Inbound > r.life(m, a) && c.Local.Wait+c.Local.Warm <= ready.Seconds()+c.Inbound
}

// in returns how long it should take until so many blocks have come free. Running requests are assumed
// to end evenly spread over an answer's usual time, as many at a time as have room.
func (r *rooms) in(m *member, a *ledger.Headroom, blocks int) time.Duration {
	if blocks <= 0 {
		return 0
	}
	return a.RoomIn(blocks, r.life(m, a))
}

// every returns the time between two similar requests that find room on m, which is full. Each takes so
// many blocks and runs so many sequences.
func (r *rooms) every(m *member, a *ledger.Headroom, blocks, sequences int) time.Duration {
	every := r.in(m, a, a.Asked(blocks))
	if most := r.sequences.of(m); most > 0 {
		every = max(every, seconds(r.slotsIn(m, a, atMost(sequences, most), most)))
	}
	return every
}

// The bounds of when it is worth asking again for room.
const (
	MinRetry = 10 * time.Millisecond
	maxRetry = 10 * time.Second
)

// means is the load of the members that reported lately. It replaces the unknown load of others, because
// unknown is not idle.
type means struct {
	usage  float64 // share in use or promised, NaN without a report
	others float64 // requests of unknown clients
}

// read fills r.standings for all members, in their order, and returns the means.
func (r *rooms) read(all []*member, now time.Time) means {
	r.standings = r.standings[:0]
	var usage, others float64
	var users, reporters int
	for _, m := range all {
		s := standing{Reading: m.load.Read(now, r.settings.LoadTTL)}
		if !math.IsNaN(s.Usage) {
			s.Headroom = r.headroom(m, s.Usage, 0)
			usage += s.share(s.Used)
			users++
		}
		if s.Running >= 0 {
			others += float64(m.Others.Count)
			reporters++
		}
		r.standings = append(r.standings, s)
	}
	mean := means{usage: usage / float64(users), others: others / float64(max(reporters, 1))}
	for i, m := range all {
		if s := &r.standings[i]; math.IsNaN(s.Usage) {
			s.Headroom = r.headroom(m, s.Usage, mean.usage)
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

// slotIn returns the expected time until so many more sequences may run on m, behind all earlier bookings.
// It is 0 if the sequences may run now, or if the engine's maximum is unknown.
func (r *rooms) slotIn(m *member, a *ledger.Headroom, sequences int) time.Duration {
	most := r.sequences.of(m)
	if most == 0 {
		return 0
	}
	over := m.batch() + m.account.Queued + m.remote.Queued + atMost(sequences, most) - most
	if over <= 0 {
		return 0
	}
	return seconds(min(r.slotsIn(m, a, over, most), ledger.MaxRoomWait.Seconds()))
}

// slotsIn returns the seconds until so many of the most sequences that m runs at a time should have ended.
func (r *rooms) slotsIn(m *member, a *ledger.Headroom, sequences, most int) float64 {
	return r.life(m, a) * float64(sequences) / float64(most)
}

// atMost returns how many sequences of a request must run at once: all, as far as the limit of m allows.
func atMost(sequences, most int) int { return max(min(sequences, most), 1) }

// life is the usual seconds of an answer on m, which computes prompts meanwhile.
func (r *rooms) life(m *member, a *ledger.Headroom) float64 {
	batch := m.batch()
	if most := r.sequences.of(m); most > 0 {
		batch = min(batch, most)
	}
	tokens := max(a.Used*m.cache().blockSize(), int(m.reads(float64(batch)))) // promised blocks included
	return float64(r.learned.lengths.Usual()) * r.learned.speed(m).Step(batch, tokens) * m.learned.PerToken()
}
