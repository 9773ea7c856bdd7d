package planner

import (
	"math"
	"slices"
	"time"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/outlier"
	"github.com/tandem-router/tandem/scoring"
)

// Rebind looks at the decode choice again, just before the decode leg is sent, and marks its lease as sent.
// The replica stays the same unless it died, is drained, or its pair was ejected, or unless it lost its room
// or prefills other prompts and another compatible replica would have the blocks sooner. Then b's decode side
// changes and moved is true. If there is no other replica, a living one keeps the request, unless its pair
// gave a wrong text. The error is *[NoRoom] or *[NoReplica].
//
// A fixed request never changes its replica.
//
// The keys of req are counted as held by the decode replica from now on, until its events say so.
func (pl *Planner) Rebind(b *Booking, req *Request, now time.Time) (moved bool, err error) {
	defer func() {
		if err == nil {
			b.transfer.sure = b.transfer.knownMatch && b.DecodeLease.Exact()
			pl.sent(b, now)
			b.DecodeLease.Speculate(time.Second, now)
		}
	}()
	ok, reason, room := pl.holds(b, now)
	if ok || b.Mode == Local {
		b.DecodeLease.MarkSent(now)
		return false, nil
	}
	if req.Fixed {
		err = &NoReplica{Pool: "decode", Reason: reason + ", and the prefill leg has named " + string(b.Decode.ID)}
	} else {
		err = pl.move(b, req, reason, room, now)
	}
	if err != nil && b.DecodeLease.Alive() && !slices.Contains(pl.outliers.PairsWrong(), b.pair()) {
		b.DecodeLease.MarkSent(now)
		return false, nil
	}
	return err == nil, err
}

// sent notes that the blocks of b are asked for now.
func (pl *Planner) sent(b *Booking, now time.Time) {
	if b.Mode == Split {
		pl.mu.Lock()
		defer pl.mu.Unlock()
		pl.flights.sent(b, now)
	}
}

// holds reports whether b's decode side is as good as when it was booked. If not, reason says why, and room
// is the time until it is as good again, [decode.Never] if waiting does not help.
func (pl *Planner) holds(b *Booking, now time.Time) (ok bool, reason string, room time.Duration) {
	ok, reason, room = b.DecodeLease.Holds(now)
	if room != decode.Never && b.Mode != Local && pl.outliers.PairOut(b.pair()) {
		return false, "its pair was ejected meanwhile", decode.Never
	}
	return ok, reason, room
}

// move books b's decode side on the best other replica. It does not if its own replica, which is ready in
// room, should have the first token earlier or fails less, counting the time by which its answer ends later.
func (pl *Planner) move(b *Booking, req *Request, reason string, room time.Duration, now time.Time) error {
	alone := b.elsewhere(req)
	q := pl.ask(&alone, now)
	defer q.over()

	pl.mu.Lock()
	defer pl.mu.Unlock()
	pl.policy.priceFor(b.Decode.Facts.Model)
	from, own := b.sides(room, now)
	view, best := pl.nextDecode(b, q, &from, now)
	if best == nil {
		return pl.nowhere(b, q, now)
	}
	to := view.Replicas[best.Slot]
	stays := pl.pair(&pl.policy.times, b, &from, &own, &b.Decode)
	moves := pl.pair(&pl.policy.times, b, &from, &best.Decode, to)
	stay := stays.Landing() + pl.outliers.Look(b.Decode.ID, outlier.Decode, now).Price
	if b.DecodeLease.Alive() && stay <= moves.Landing()+b.DecodeLease.Slower(best)+best.Failures {
		return &NoRoom{
			Reason: "it will be ready before another one has the blocks, or answers sooner",
			Retry:  max(room, decode.MinRetry),
		}
	}
	next := pl.pair(pl.policy.model, b, &from, &best.Decode, to)
	lease := pl.decode.Book(best, &q.decode, b.handedOver(&next, req.Quiet, now), now)
	if lease == nil {
		return &NoRoom{Reason: "replicas changed while the request was moved", Retry: decode.MinRetry}
	}
	b.DecodeLease.Release(now)
	lease.MarkSent(now)
	b.outcome.decode.End()
	b.outcome.decode = pl.outliers.Begin(to.ID, outlier.Decode, now)
	b.transfer.knownMatch = q.knowsMatch(best)
	b.decodeOn(to, lease, best, reason)
	b.predicted.first = next.Landing() + best.Step
	return nil
}

// elsewhere returns req without b's decode replica as a candidate. If the replica has left, its name may now
// mean another engine.
func (b *Booking) elsewhere(req *Request) Request {
	alone := *req
	alone.SplitOK, alone.LocalOK = false, false
	alone.Pulls = false
	if !b.DecodeLease.ReplicaLeft() {
		alone.AvoidDecode = append([]replica.ID{b.Decode.ID}, req.AvoidDecode...)
	}
	return alone
}

// sides returns b's prefill replica, which has computed the prompt, and b's decode replica, which is ready in
// room. On both, only transfers that were booked before are ahead: the prompts of later transfers are not
// computed yet.
func (b *Booking) sides(room time.Duration, now time.Time) (from scoring.Prefill, stays scoring.Decode) {
	leaving, coming := b.DecodeLease.Ahead(now)
	from = scoring.Prefill{Outbox: leaving, Leaving: b.PrefillLease.Leaving(now)}
	stays = scoring.Decode{
		Missing: b.transfer.missing, Inbound: coming, Local: scoring.Local{Busy: room.Seconds()},
	}
	return from, stays
}

// pair returns the times, by a model, of a handoff between b's prefill replica and the decode replica d.
func (pl *Planner) pair(
	m scoring.Model, b *Booking, from *scoring.Prefill, to *scoring.Decode, d *replica.Replica,
) scoring.Pair {
	s, r := m.Sender(from), m.Receiver(to)
	return s.Meet(&r, pl.pairs.rate(&b.Prefill, d))
}

// handedOver is the schedule of a request that is sent to its decode replica now, since it is prefilled.
func (b *Booking) handedOver(to *scoring.Pair, quiet bool, now time.Time) decode.Schedule {
	landing := seconds(to.Landing())
	schedule := decode.Schedule{
		AdmitAt: now, SendAt: now, LandAt: now.Add(landing), Transfer: seconds(to.Own),
		Outbox: b.PrefillLease.Outbox(),
	}
	if quiet {
		schedule.UnseenArrival = max(landing, unheard)
	}
	return schedule
}

// decodeOn puts another decode replica into b and into the record of the decision.
func (b *Booking) decodeOn(to *replica.Replica, lease *decode.Lease, c *decode.Candidate, reason string) {
	from := b.Decode.ID
	b.Decode = *to
	b.DecodeLease = lease
	b.MatchedDecode = c.Matched
	b.transfer.missing = c.Missing
	if b.Decision != nil {
		d := *b.Decision
		d.Decode = to.ID
		d.Held = c.Matched
		d.Moved = &Move{From: from, To: to.ID, Reason: reason}
		b.Decision = &d
	}
}

// nextDecode returns the decode candidate that makes the cheapest plan with what b's prefill replica has, nil
// if there is none.
func (pl *Planner) nextDecode(
	b *Booking, q *question, from *scoring.Prefill, now time.Time,
) (*decode.View, *decode.Candidate) {
	candidates, view, rejected := pl.decode.Candidates(&q.decode, now, pl.comparison.decodes[:0], nil)
	pl.comparison.decodes = candidates
	pl.comparison.rejected = rejected
	var best *decode.Candidate
	least := math.Inf(1)
	for j := range pl.comparison.decodes {
		c := &pl.comparison.decodes[j]
		d := view.Replicas[c.Slot]
		if !pl.takes(b, q, d) {
			continue
		}
		failing := pl.outliers.Look(d.ID, outlier.Decode, now)
		if failing.Out && b.DecodeLease.Alive() { // to wait is better
			continue
		}
		c.Failures = failing.Price
		cost := scoring.Split(pl.policy.model, from, &c.Decode, pl.pairs.rate(&b.Prefill, d)).Total()
		if best == nil || cost < least {
			best, least = c, cost
		}
	}
	return view, best
}

// takes reports whether d can stand in for b's decode replica: compatible, and able to reuse token ids where
// the one before was.
func (pl *Planner) takes(b *Booking, q *question, d *replica.Replica) bool {
	reuses := d.Facts.ReuseIDs || !b.Decode.Facts.ReuseIDs
	return reuses && pl.refusal.unpaired(&b.Prefill, d, q.Model) == "" &&
		!slices.Contains(q.AvoidPairs, Pairing{Prefill: b.Prefill.ID, Decode: d.ID})
}

// nowhere says why no other decode replica can take b.
func (pl *Planner) nowhere(b *Booking, q *question, now time.Time) error {
	var out []decode.Excluded
	pl.decode.Candidates(&q.decode, now, nil, &out)
	for i := range out {
		if out[i].Room > 0 {
			return &NoRoom{Reason: "decode: " + listDecodes(out), Retry: max(out[i].Room, decode.MinRetry)}
		}
	}
	if len(pl.comparison.decodes) > 0 {
		return &NoReplica{
			Pool:   "pair",
			Reason: "no other decode replica can take the KV blocks of " + string(b.Prefill.ID),
		}
	}
	return &NoReplica{Pool: "decode", Reason: listDecodes(out)}
}

// learnBytes is the smallest transfer whose time measures the link.
const learnBytes = 16 << 20

// knowsMatch reports whether it is known what c holds of the prompt. A replica that holds more than that is
// sent less than was planned, in a time that says nothing of the link: what its events do not tell, as where
// it is approximated, it may have all the same.
func (q *question) knowsMatch(c *decode.Candidate) bool {
	return c.Trust == replica.Live && !c.Truncated && q.Chunk == 0
}

// FirstToken notes that the first token of the decode leg arrived. The planner learns from it the time of
// the handover and the speed of the pair's link, or the speed of a local prefill. FirstToken returns the
// time until the blocks had arrived, without the step that made the token. It returns 0 where this time is
// unknown: nothing was transferred, the answer is not streamed, or the request also waited for other work.
func (pl *Planner) FirstToken(b *Booking, now time.Time) (transfer time.Duration) {
	x := b.DecodeLease.FirstToken(now)
	if b.Mode == Local {
		return 0
	}
	took := x.Took.Seconds()
	if took > 0 {
		took = max(took-b.DecodeLease.StepTime(), took/2)
	}
	pl.mu.Lock()
	defer pl.mu.Unlock()
	pl.flights.landed(b, took, x, now)
	if x.Waited || b.transfer.missing <= 0 {
		return 0
	}
	return seconds(took)
}

// ended takes out the transfer of a booking that ends.
func (pl *Planner) ended(b *Booking, now time.Time) {
	if pl != nil && b.Mode == Split {
		pl.mu.Lock()
		defer pl.mu.Unlock()
		pl.flights.ended(b, now)
	}
}

// Counted takes in the counters of the reads of decode replica id. For the transfers that arrived since the
// last call, the times by the router's clock are scaled to the engine's total. Safe for concurrent use.
func (pl *Planner) Counted(id replica.ID, reads replica.Reads, now time.Time) {
	if reads == (replica.Reads{}) {
		return
	}
	pl.mu.Lock()
	defer pl.mu.Unlock()
	pl.flights.count(id, reads, now)
}
