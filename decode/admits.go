package decode

import "time"

// shortWait is how long a request may be expected to wait inside the engine for its room. It is priced (see
// [scoring.Decode.Room]), and whoever waits here instead waits for others as well, and has no prompt computed
// meanwhile. A longer wait is better spent here, where any replica that has room can end it.
const shortWait = 4 * time.Second

// admits reports whether a request of so many blocks, whose prompt can be there when ready has passed, may be
// booked on m. There has to be room for it soon after, and for each reserved lease that begins later.
//
// Without the second all who wait for their prefill would count on the same blocks. And if their room were
// kept free for them from now on, it would lie idle as long as they wait.
func (p *Pool) admits(m *member, a *account, blocks int, ready time.Duration, now time.Time) bool {
	if a.capacity == 0 {
		return true
	}
	blocks = a.asked(blocks)
	// What comes free is worked out only where it matters.
	if a.free < blocks && a.free+p.released(m, a, ready+shortWait) < blocks {
		return false
	}
	if a.reserved == 0 {
		return true
	}
	return p.keepsRoom(m, a, blocks, ready, now)
}

// keepsRoom reports whether a request of so many blocks that begins when ready has passed, each reserved
// lease of m that begins later, and those of other routers find their room soon after they begin, whoever
// begins before.
func (p *Pool) keepsRoom(m *member, a *account, blocks int, ready time.Duration, now time.Time) bool {
	d := demand{
		account: a, reserved: &m.ledger.orders.reserved, now: p.sinceEpoch(now),
		blocks: blocks, ready: ready, theirs: m.remote.Reserved, theirsIn: m.remote.ReservedIn,
	}
	if int(d.reserved.weight)+blocks+d.theirs <= a.free {
		return true
	}
	d.life = p.life(m, a)
	return d.leasesFit() && d.fitUntil(ready) && (d.theirs == 0 || d.theirsIn < ready || d.fitUntil(d.theirsIn))
}

// demand is the room that those need who wait for their prefills on one member, and a request that is asked
// for.
type demand struct {
	*account
	reserved *ordered
	now      int64         // as in ordered
	blocks   int           // of the request
	ready    time.Duration // until it begins
	theirs   int           // blocks of other routers' reserved leases
	theirsIn time.Duration // until those begin
	life     float64       // seconds of an answer
}

// in returns how long it takes until e begins.
func (d *demand) in(e entry) time.Duration { return time.Duration(e.key - d.now) }

// fits reports whether there should be room when so long has passed for so many blocks of our reserved
// leases, and whoever else has begun by then.
func (d *demand) fits(ours int, in time.Duration) bool {
	asked := ours + d.blocks
	if d.theirsIn <= in {
		asked += d.theirs
	}
	return asked <= d.free+d.released(in+shortWait, d.life)
}

// fitUntil reports whether all fit who begin until then.
func (d *demand) fitUntil(in time.Duration) bool {
	_, ours := d.reserved.before(func(key int64) bool { return key > d.now+int64(in) })
	return d.fits(int(ours), in)
}

// leasesFit reports whether all of our reserved leases fit that begin later than the request. One is looked
// at by itself only where those that stand around it would not fit if all of them began with the first.
func (d *demand) leasesFit() bool {
	ours := 0
	for _, r := range d.reserved.runs {
		all, last := ours+int(r.weight), d.in(r.last())
		if last < d.ready || d.fitTogether(all, max(d.in(r.entries[0]), d.ready), last) {
			ours = all
			continue
		}
		for _, e := range r.entries {
			ours += int(e.weight)
			if in := d.in(e); in >= d.ready && !d.fits(ours, in) {
				return false
			}
		}
	}
	return true
}

// fitTogether reports whether all who have begun by the last of them would fit when the first of them begins.
func (d *demand) fitTogether(ours int, first, last time.Duration) bool {
	if d.theirsIn > first && d.theirsIn <= last {
		ours += d.theirs
	}
	return d.fits(ours, first)
}

// reservedIn returns when the reserved leases of m are admitted, on average over their blocks.
func (p *Pool) reservedIn(m *member, now time.Time) time.Duration {
	sum, at := 0.0, p.sinceEpoch(now)
	for _, r := range m.ledger.orders.reserved.runs {
		for _, e := range r.entries {
			sum += float64(e.weight) * time.Duration(e.key-at).Seconds()
		}
	}
	return seconds(sum / float64(max(m.ledger.reserved, 1)))
}
