package planner

import (
	"slices"
	"time"

	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// outcome is where the success or failure of a booking counts, beside the pair.
type outcome struct {
	prefill, decode outlier.Attempt // ended by Release; prefill is zero for Local
}

// begin notes on which legs the booking puts a request.
func (b *Booking) begin(now time.Time) {
	outliers := &b.planner.outliers
	if b.Mode == Local {
		b.outcome.decode = outliers.Begin(b.Decode.ID, outlier.Whole, now)
		return
	}
	b.outcome.prefill = outliers.Begin(b.Prefill.ID, outlier.Prefill, now)
	b.outcome.decode = outliers.Begin(b.Decode.ID, outlier.Decode, now)
}

// pair returns the pair that b is booked on.
func (b *Booking) pair() Pairing {
	return Pairing{Prefill: b.Prefill.ID, Decode: b.Decode.ID}
}

// Fault is a failure of a booking, with the replica or pair at fault.
type Fault struct {
	On   Blame
	Kind outlier.Kind
	Took time.Duration // until the failure was known
	At   time.Time     // when the failure was known
	// Request distinguishes requests, see [outlier.Failure].
	Request uint64
}

func (f *Fault) failure() outlier.Failure {
	return outlier.Failure{Kind: f.Kind, Took: f.Took, Request: f.Request}
}

// Blame names the side at fault.
type Blame uint8

// Nobody: the client, the network to it, or the router itself. OnPrefill: the prefill replica. OnDecode: the
// replica that generates. OnPair: a replica of the pair or the path between the two; one failure cannot say
// which.
const (
	Nobody Blame = iota
	OnPrefill
	OnDecode
	OnPair
)

// Counted records how many tokens the prompt has by an engine's count, 0 unknown. Later estimates are
// corrected by the count. A prompt of known token ids changes nothing. Call it before the prefill lease ends,
// because the lease learns from the count. Safe for concurrent use.
func (b *Booking) Counted(tokens int) {
	if tokens <= 0 || b.predicted.estimated == 0 {
		return
	}
	b.PrefillLease.Counted(tokens)
	pl := b.planner
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if !b.predicted.counted {
		b.predicted.counted = true
		text := pl.texts[b.Decode.Facts.Model]
		text.Learn(b.predicted.estimated, tokens)
		pl.texts[b.Decode.Facts.Model] = text
	}
}

// Prefilled records that the prefill replica answered with transfer parameters.
func (b *Booking) Prefilled(now time.Time) []outlier.Change {
	return b.outcome.prefill.Good(now)
}

// Decoding records that the answer has begun well.
func (b *Booking) Decoding(now time.Time) []outlier.Change {
	changes := b.outcome.decode.Good(now)
	if b.Mode == Split {
		changes = append(changes, b.planner.outliers.Began(b.pair(), now)...)
	}
	return changes
}

// Moved records that the blocks of a split answer arrived, or that nothing contradicts it.
func (b *Booking) Moved(now time.Time) []outlier.Change {
	return b.planner.outliers.Loaded(b.pair(), now)
}

// Failed holds a failure against the replica or pair at fault.
func (b *Booking) Failed(f Fault, now time.Time) []outlier.Change {
	switch f.On {
	case OnPrefill:
		return b.outcome.prefill.Bad(f.failure(), now)
	case OnDecode:
		return b.outcome.decode.Bad(f.failure(), now)
	case OnPair:
		return b.planner.outliers.NotLoaded(b.pair(), f.failure(), now)
	}
	return nil
}

// excuse undoes [Booking.Failed]: the request is the cause, because it failed elsewhere too, or the cause is
// unknown.
func (b *Booking) excuse(f Fault, cause bool, now time.Time) []outlier.Change {
	switch f.On {
	case OnPrefill:
		return b.outcome.prefill.Excuse(cause, now)
	case OnDecode:
		return b.outcome.decode.Excuse(cause, now)
	case OnPair:
		return b.planner.outliers.ExcuseLoad(b.pair(), f.Kind, cause, f.At, now)
	}
	return nil
}

// own confirms [Booking.Failed]: the request succeeded elsewhere.
func (b *Booking) own(f Fault, now time.Time) {
	switch f.On {
	case OnPrefill:
		b.outcome.prefill.Own(now)
	case OnDecode:
		b.outcome.decode.Own(now)
	case OnPair:
		b.planner.outliers.OwnLoad(b.pair(), now)
	}
}

// Hold holds a failure of the time f.At against the replica or pair at fault. came is the arrival of the
// request: requests that came together and disturbed each other prove nothing about any replica.
func (b *Booking) Hold(
	f Fault, answered bool, came time.Time,
) (failed FailedAttempt, changes []outlier.Change) {
	failed = FailedAttempt{Booking: b, Fault: f, Answered: answered, OutBeforeRequest: b.knownBad(f, came)}
	out := b.knownBad(f, f.At)
	failed.OutBeforeFailure = out && !b.excused(f)
	changes = b.Failed(f, f.At)
	ejects := func(c outlier.Change) bool { return c.To == outlier.Ejected }
	failed.OutNow = out || slices.ContainsFunc(changes, ejects)
	return failed, changes
}

// knownBad reports whether the replica or pair at fault was ejected before the given time and has not fully
// returned since.
func (b *Booking) knownBad(f Fault, before time.Time) bool {
	switch f.On {
	case OnPrefill:
		return b.outcome.prefill.Known(before)
	case OnDecode:
		return b.outcome.decode.Known(before)
	case OnPair:
		return b.planner.outliers.PairKnown(b.pair(), before) ||
			b.outcome.decode.Known(before) || b.outcome.prefill.Known(before)
	}
	return false
}

// excused reports whether the recent failures of the replica at fault were rather caused by the requests.
func (b *Booking) excused(f Fault) bool {
	switch f.On {
	case OnPrefill:
		return b.outcome.prefill.Excused()
	case OnDecode:
		return b.outcome.decode.Excused()
	case OnPair:
		return b.planner.outliers.PairExcused(b.pair())
	}
	return false
}
