package planner

import (
	"time"

	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// begin notes on which legs the booking puts a request.
func (pl *Planner) begin(b *Booking, now time.Time) {
	if b.Mode == Local {
		b.onDecode = pl.outliers.Begin(b.Decode.ID, outlier.Whole, now)
		return
	}
	b.onPrefill = pl.outliers.Begin(b.Prefill.ID, outlier.Prefill, now)
	b.onDecode = pl.outliers.Begin(b.Decode.ID, outlier.Decode, now)
}

// pair returns the pair that b is booked on.
func (b *Booking) pair() outlier.Pair {
	return outlier.Pair{Prefill: b.Prefill.ID, Decode: b.Decode.ID}
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

// Prefilled records that the prefill replica answered with transfer parameters.
func (pl *Planner) Prefilled(b *Booking, now time.Time) []outlier.Change {
	return b.onPrefill.Good(now)
}

// Decoding records that the answer has begun well.
func (pl *Planner) Decoding(b *Booking, now time.Time) []outlier.Change {
	changes := b.onDecode.Good(now)
	if b.Mode == Split {
		changes = append(changes, pl.outliers.Began(b.pair(), now)...)
	}
	return changes
}

// Moved records that the blocks of a split answer arrived, or that nothing contradicts it.
func (pl *Planner) Moved(b *Booking, now time.Time) []outlier.Change {
	return pl.outliers.Loaded(b.pair(), now)
}

// Failed holds a failure against the replica or pair at fault.
func (pl *Planner) Failed(b *Booking, f Fault, now time.Time) []outlier.Change {
	switch f.On {
	case OnPrefill:
		return b.onPrefill.Bad(f.failure(), now)
	case OnDecode:
		return b.onDecode.Bad(f.failure(), now)
	case OnPair:
		return pl.outliers.NotLoaded(b.pair(), f.failure(), now)
	}
	return nil
}

// Excuse undoes [Planner.Failed]: the request is the cause, because it failed elsewhere too, or the cause is
// unknown.
func (pl *Planner) Excuse(b *Booking, f Fault, cause bool, now time.Time) []outlier.Change {
	switch f.On {
	case OnPrefill:
		return b.onPrefill.Excuse(cause, now)
	case OnDecode:
		return b.onDecode.Excuse(cause, now)
	case OnPair:
		return pl.outliers.ExcuseLoad(b.pair(), f.Kind, cause, f.At, now)
	}
	return nil
}

// Own confirms [Planner.Failed]: the request succeeded elsewhere.
func (pl *Planner) Own(b *Booking, f Fault, now time.Time) {
	switch f.On {
	case OnPrefill:
		b.onPrefill.Own(now)
	case OnDecode:
		b.onDecode.Own(now)
	case OnPair:
		pl.outliers.OwnLoad(b.pair(), now)
	}
}

// KnownBad reports whether the replica or pair at fault was ejected before the given time and has not fully
// returned since.
func (pl *Planner) KnownBad(b *Booking, f Fault, before time.Time) bool {
	switch f.On {
	case OnPrefill:
		return b.onPrefill.Known(before)
	case OnDecode:
		return b.onDecode.Known(before)
	case OnPair:
		return pl.outliers.PairKnown(b.pair(), before) || b.onDecode.Known(before) || b.onPrefill.Known(before)
	}
	return false
}

// Excused reports whether the recent failures of the replica at fault were rather caused by the requests.
func (pl *Planner) Excused(b *Booking, f Fault) bool {
	switch f.On {
	case OnPrefill:
		return b.onPrefill.Excused()
	case OnDecode:
		return b.onDecode.Excused()
	case OnPair:
		return pl.outliers.PairExcused(b.pair())
	}
	return false
}
