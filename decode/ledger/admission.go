package ledger

import (
	"time"

	"github.com/tandem-router/tandem/decode/order"
)

// ShortWait is how long a request may be expected to wait inside the engine for its room. The cost of a plan
// has this wait, see [scoring.Decode.Room]. A request that waits at the router instead also waits for other
// requests, and no replica computes its prompt meanwhile. A longer wait is better spent at the router, where
// any replica with room can end the wait.
//
// [scoring.Decode.Room]: https://pkg.go.dev/github.com/tandem-router/tandem/scoring#Decode
const ShortWait = 4 * time.Second

// Request is the room that a request asks for.
type Request struct {
	Blocks int
	Ready  time.Duration // until its prompt can be there
	Now    int64         // on the scale of [Ledger.At]
}

// Admits reports whether a request may be booked. Soon after its prompt arrives there must be room for the
// request, and for each reserved lease that begins later. life returns the seconds that an answer lives, and
// is called only if released blocks matter.
//
// Without the second rule all requests that wait for their prefill would count on the same blocks. Blocks
// that were kept free from the booking on would lie idle during the prefill.
func (a *Account) Admits(h *Headroom, r Request, theirs *PeerLoad, life func() float64) bool {
	if h.Capacity == 0 {
		return true
	}
	r.Blocks = h.Asked(r.Blocks)
	if h.Free < r.Blocks && h.Free+h.releasedSoon(r.Ready, life) < r.Blocks {
		return false
	}
	return h.Reserved == 0 || a.keepsRoom(h, r, theirs, life)
}

// releasedSoon returns the blocks that should have come free soon after a prompt is there.
func (h *Headroom) releasedSoon(ready time.Duration, life func() float64) int {
	if ready+ShortWait <= 0 || h.Used <= 0 {
		return 0
	}
	return h.Released(ready+ShortWait, life())
}

// keepsRoom reports whether there will be room for the request, for each reserved lease that begins later,
// and for the reserved leases of other routers. Each needs room soon after its begin, beside all earlier
// leases.
func (a *Account) keepsRoom(h *Headroom, r Request, theirs *PeerLoad, life func() float64) bool {
	d := demand{
		Headroom: h, Request: r, reserved: &a.orders.reserved,
		theirs: theirs.Reserved, theirsIn: theirs.ReservedIn,
	}
	if int(d.reserved.Weight())+d.Blocks+d.theirs <= h.Free {
		return true
	}
	d.life = life()
	return d.leasesFit() && d.fitUntil(d.Ready) &&
		(d.theirs == 0 || d.theirsIn < d.Ready || d.fitUntil(d.theirsIn))
}

// demand is the room that one request and the reserved leases on one replica need.
type demand struct {
	*Headroom
	Request
	reserved *order.List
	theirs   int           // blocks of other routers' reserved leases
	theirsIn time.Duration // until these leases begin
	life     float64       // seconds of an answer
}

// in returns how long it takes until e begins.
func (d *demand) in(e order.Entry) time.Duration { return time.Duration(e.Key - d.Now) }

// fits reports whether there should be room after the given time for ours, the blocks of our reserved
// leases, and for all other demand that has begun by then.
func (d *demand) fits(ours int, in time.Duration) bool {
	asked := ours + d.Blocks
	if d.theirsIn <= in {
		asked += d.theirs
	}
	return asked <= d.Free+d.Released(in+ShortWait, d.life)
}

// fitUntil reports whether everything fits that begins until then.
func (d *demand) fitUntil(in time.Duration) bool {
	_, ours := d.reserved.Before(func(key int64) bool { return key > d.Now+int64(in) })
	return d.fits(int(ours), in)
}

// leasesFit reports whether all reserved leases fit that begin later than the request. It looks at a single
// lease only if its neighbours would not fit when all began with the first.
func (d *demand) leasesFit() bool {
	ours := 0
	for _, run := range d.reserved.Runs() {
		all, last := ours+int(run.Weight), d.in(run.Last())
		if last < d.Ready || d.fitTogether(all, max(d.in(run.Entries[0]), d.Ready), last) {
			ours = all
			continue
		}
		for _, e := range run.Entries {
			ours += int(e.Weight)
			if in := d.in(e); in >= d.Ready && !d.fits(ours, in) {
				return false
			}
		}
	}
	return true
}

// fitTogether reports whether all leases that begin up to the last one would fit when the first begins.
func (d *demand) fitTogether(ours int, first, last time.Duration) bool {
	if d.theirsIn > first && d.theirsIn <= last {
		ours += d.theirs
	}
	return d.fits(ours, first)
}

// mostExpecting is the share of a replica's room that requests may hold while their KV arrives, if the
// arrival takes longer than an answer. If such requests held all the room, no prompt could be computed
// there. Then all other prompts would be handed over as well, and the links would stay full (decision 0056).
// A request that waits at the router holds no room. Half of the room is seconds of transfers, which keep a
// link busy.
const mostExpecting = 0.5

// Saturated reports whether requests that still wait for their KV when inbound seconds of transfers are left
// will hold more of the room than mostExpecting. Leases and transfers of other routers count, too. The
// waiting requests are assumed to end in proportion to the seconds of the transfers.
func (a *Account) Saturated(h *Headroom, theirs *PeerLoad, inbound float64) bool {
	blocks := float64(a.Reserved() + a.Expecting + theirs.Reserved)
	if theirs.Sequences > 0 {
		blocks += float64(theirs.Held) * min(1, float64(theirs.Arriving)/float64(theirs.Sequences))
	}
	moving := max((a.orders.coming.Moving() + theirs.Moving).Seconds(), inbound)
	return blocks*inbound/moving > mostExpecting*float64(h.Most)
}
