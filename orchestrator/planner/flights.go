package planner

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
)

// flights is the transfers that are under way. Guarded by Planner.mu.
//
// Transfers share the links of their two ends, whether engines move them one after the other or all at once.
// So a transfer's time is not divided by its own bytes, but by all bytes that moved at the busier end in
// this time: the quotient is the speed of the link. Bytes are counted in seconds, at the speeds that the
// operator configured, so that transfers over different kinds of links can be added up.
type flights struct {
	pairs  *pairs
	policy *policyInForce
	decode *decode.Pool                // learns for how long its replicas post reads
	ends   [2]map[replica.ID][]*flight // by prefill replica and by decode replica
	seen   time.Time                   // time of the last look for overdue transfers
	// The newest read counters of each decode replica, and the transfers that arrived since then.
	counted map[replica.ID]replica.Reads
	come    map[replica.ID][]come
	besides map[replica.ID]float64 // seconds that they took besides reads of late, on average
	sizes   map[replica.ID]sizes   // of their reads and of the transfers that they count
}

// flight is the transfer of one request's blocks.
type flight struct {
	pair       Pairing
	kind       replica.Link
	configured float64 // seconds a byte of its link, by the operator
	own        float64 // seconds
	sentAt     time.Time
	least      float64 // seconds that the engine may take besides, at least
	most       float64 // ... and at most
	knows      bool    // its size is known, and large enough to measure the link
	lease      *decode.Lease
	beside     [2]estimate.Range // seconds of blocks of others that have come since it was sent, at each end
}

func newFlights(pairs *pairs, decode *decode.Pool) flights {
	return flights{
		pairs: pairs, policy: pairs.policy, decode: decode, ends: [2]map[replica.ID][]*flight{{}, {}},
		counted: map[replica.ID]replica.Reads{}, come: map[replica.ID][]come{},
		besides: map[replica.ID]float64{}, sizes: map[replica.ID]sizes{},
	}
}

func (x *flight) at() [2]replica.ID { return [2]replica.ID{x.pair.Prefill, x.pair.Decode} }

// begin adds x.
func (f *flights) begin(x *flight) {
	for side, id := range x.at() {
		f.ends[side][id] = append(f.ends[side][id], x)
	}
}

// over removes x, whose blocks have arrived or never will.
func (f *flights) over(x *flight, came bool, now time.Time) {
	for side, id := range x.at() {
		at := slices.Index(f.ends[side][id], x)
		if at < 0 {
			return
		}
		left := slices.Delete(f.ends[side][id], at, at+1)
		if f.ends[side][id] = left; len(left) == 0 {
			delete(f.ends[side], id)
		}
		for _, other := range left {
			if came {
				other.came(side, x, now)
			}
		}
	}
}

// came counts the blocks of another transfer that have arrived at one end of x. If that transfer began
// before x, all its blocks may have moved during x, where engines move one transfer after the other. Or only
// a part in proportion to the time has moved during x.
func (x *flight) came(side int, other *flight, now time.Time) {
	part := 1.0
	if took := now.Sub(other.sentAt); other.sentAt.Before(x.sentAt) && took > 0 {
		part = float64(now.Sub(x.sentAt)) / float64(took)
	}
	x.beside[side].Low += part * other.own
	x.beside[side].High += other.own
}

// moved returns how many seconds of blocks have moved at the busier end of x while it was under way, its own
// included. Of others that are still under way nothing has moved, or as much as of x in the same time.
func (f *flights) moved(x *flight, now time.Time) (all estimate.Range) {
	took := max(1, float64(now.Sub(x.sentAt)))
	for side, id := range x.at() {
		high := x.own + x.beside[side].High
		for _, other := range f.ends[side][id] {
			if other != x {
				part := min(1, float64(now.Sub(other.sentAt))/took)
				high += min(other.own, part*x.own)
			}
		}
		all.Low = max(all.Low, x.own+x.beside[side].Low)
		all.High = max(all.High, high)
	}
	return all
}

// booked notes that b waits for a transfer.
func (f *flights) booked(b *Booking, now time.Time) {
	x := &b.transfer
	x.kind = kindOf(&b.Prefill, &b.Decode)
	x.awaited = true
	f.pairs.links.awaited[x.kind]++
	f.pairs.touch(&b.Prefill, &b.Decode, now)
}

// sent notes that the blocks of b are asked for now.
func (f *flights) sent(b *Booking, now time.Time) {
	bytes := float64(b.transfer.missing) * f.policy.bytesOf(b.Decode.Facts.Model)
	hands, configured := f.pairs.handover.Seconds(f.policy.Setup.Seconds()), f.policy.seed(&b.Prefill, &b.Decode)
	x := &flight{
		pair: b.pair(), kind: kindOf(&b.Prefill, &b.Decode), lease: b.DecodeLease,
		configured: configured, own: bytes * configured, sentAt: now, knows: b.transfer.sure && bytes >= learnBytes,
		least: hands / 2,
		most:  estimate.HandoverMost + engineDoubt*(b.DecodeLease.StepTime()+f.besides[b.Decode.ID]),
	}
	if b.transfer.flight != nil {
		f.over(b.transfer.flight, false, now)
	}
	b.transfer.flight = x
	f.begin(x)
	b.DecodeLease.Posts(b.transfer.missing)
}

// engineDoubt is how many times as long as predicted an engine's own steps may well take.
const engineDoubt = 2

// landed notes that the blocks of b have arrived, and learns from the time that they took: in seconds,
// without the step that made the first token, 0 where it is not known. a says what else the request waited
// for.
func (f *flights) landed(b *Booking, took float64, a decode.Arrival, now time.Time) {
	x, t := b.transfer.flight, f.pairs
	f.settled(b)
	if x == nil {
		return
	}
	b.transfer.flight = nil
	moved := f.moved(x, now)
	if took > 0 {
		f.await(come{x, took, moved})
	}
	if took > 0 && x.knows {
		s := sample(took, x.least, x.most+engineDoubt*a.Held, moved, x.configured)
		if a.Waited {
			s.Low = 0
		} else {
			believed := t.links.kinds[x.kind].PerByte(t.links.get(x.pair), x.configured, now) / x.configured
			t.handover.Learn(t.policy.Setup.Seconds(), took, math.Sqrt(moved.Low*moved.High)*believed)
			t.policy.handOver(&t.handover)
		}
		t.learn(x, s, now)
	}
	f.over(x, true, now)
}

// overdue learns from transfers that are under way for longer than the estimate allows. Without it, a link a
// hundred times slower than configured would get many more transfers before the first has arrived.
func (f *flights) overdue(now time.Time) {
	if now.Sub(f.seen) < decode.ProgressEvery {
		return
	}
	f.seen = now
	// One late transfer changes what the next one teaches. A fixed order makes decisions repeatable.
	for _, to := range slices.Sorted(maps.Keys(f.ends[1])) {
		for _, x := range f.ends[1][to] {
			f.isLate(x, now)
		}
	}
}

// isLate learns from x, which is under way, where it is for longer than it can be.
func (f *flights) isLate(x *flight, now time.Time) {
	took := now.Sub(x.sentAt).Seconds()
	if !x.knows || took < x.most {
		return
	}
	s := sample(took, 0, x.most, f.moved(x, now), x.configured)
	s.High = math.Inf(1)
	links := &f.pairs.links
	if s.Low > links.kinds[x.kind].PerByte(links.get(x.pair), x.configured, now) && x.lease.Fetches(now) {
		f.pairs.learn(x, s, now)
	}
}

// ended takes out the transfer of a booking that ends.
func (f *flights) ended(b *Booking, now time.Time) {
	f.settled(b)
	if x := b.transfer.flight; x != nil {
		f.over(x, false, now)
		b.transfer.flight = nil
	}
}

// settled notes that b does not wait for a transfer any more.
func (f *flights) settled(b *Booking) {
	if b.transfer.awaited {
		b.transfer.awaited = false
		f.pairs.links.awaited[b.transfer.kind]--
	}
}
