package planner

import (
	"time"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/roster"
)

// book reserves the chosen plan on both pools. It returns nil if a pool no longer has the room.
func (pl *Planner) book(q *question, now time.Time) *Booking {
	d := &pl.comparison.decodes[pl.comparison.chosen.Decode]
	booking := &Booking{planner: pl, MatchedDecode: d.Matched}
	var schedule decode.Schedule
	if pl.comparison.chosen.Prefill < 0 {
		schedule = booking.local(q, d)
	} else if schedule = pl.split(booking, q, d, now); booking.PrefillLease == nil {
		return nil
	}
	booking.DecodeLease = pl.decode.Book(d, &q.decode, schedule, now)
	if booking.DecodeLease == nil {
		booking.PrefillLease.Release(now)
		return nil
	}
	if !q.Exact {
		booking.predicted.estimated = q.Tokens
	}
	booking.Decode = *pl.pairs.decode.Replicas[d.Slot]
	booking.begin(now)
	booking.predicted.cost = costOf(pl.comparison)
	booking.Decision = pl.comparison.record(q, now)
	if booking.Mode == Split {
		pl.flights.booked(booking, now)
	}
	return booking
}

// local makes b a booking of d alone and returns the expected times on d.
func (b *Booking) local(q *question, d *decode.Candidate) decode.Schedule {
	b.Mode = Local
	b.transfer.pull = pullFrom(d.Source)
	b.predicted.within = d.Local.Ready()
	b.predicted.first = b.predicted.within
	schedule := decode.Schedule{Local: true}
	if q.Quiet {
		schedule.UnseenArrival = max(seconds(b.predicted.within), unheard)
	}
	return schedule
}

// split books the chosen prefill replica beside d and returns the expected times on d. If b has no prefill
// lease afterwards, the prefill replica has no room any more.
func (pl *Planner) split(b *Booking, q *question, d *decode.Candidate, now time.Time) decode.Schedule {
	chosen := pl.comparison.chosen
	p := &pl.comparison.prefills[chosen.Prefill]
	b.Mode = Split
	if b.PrefillLease = pl.prefill.Book(p, now); b.PrefillLease == nil {
		return decode.Schedule{}
	}
	b.Prefill = *pl.pairs.prefill.Replicas[p.Slot]
	b.MatchedPrefill = p.Matched
	b.transfer = expectedTransfer{missing: d.Missing, knownMatch: q.knowsMatch(d)}
	b.transfer.pull = pullFrom(p.Source)
	pair := pl.comparison.table.Pair(int(chosen.Prefill), int(chosen.Decode))
	b.predicted = prediction{within: p.Ready(), first: pair.Landing() + d.Step}
	landing, sendAt := seconds(pair.Landing()), now.Add(seconds(b.predicted.within))
	schedule := decode.Schedule{
		AdmitAt: now.Add(seconds(p.Wait)), SendAt: sendAt, LandAt: sendAt.Add(landing), Transfer: seconds(pair.Own),
		Outbox: b.PrefillLease.Outbox(),
	}
	if q.Quiet {
		schedule.UnseenArrival = max(landing, unheard)
	}
	return schedule
}

func pullFrom(s roster.Source) Pull {
	if s.Replica == nil {
		return Pull{}
	}
	return Pull{s.ID, s.Host, s.PullPort, s.Tokens}
}

// unheard is the least expected time until the first token of an answer that is not streamed.
const unheard = time.Millisecond

// speculate puts the prompt's blocks into the index of the replica that is going to compute them: the next
// request of the same prefix would come before the engine's events.
func (b *Booking) speculate(req *Request, now time.Time) {
	if b.Mode == Split {
		b.PrefillLease.Speculate(req.PrefillKeys, seconds(b.predicted.within), now)
		return
	}
	b.DecodeLease.Speculate(seconds(b.predicted.within), now)
}
