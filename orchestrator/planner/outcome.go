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

// Fault is a failure of a booking, held against whom it concerns.
type Fault struct {
	On   Blame
	Kind outlier.Kind
	Took time.Duration // until it was known
	At   time.Time     // when it was
	// Request tells requests apart, see [outlier.Failure].
	Request uint64
}

func (f *Fault) failure() outlier.Failure {
	return outlier.Failure{Kind: f.Kind, Took: f.Took, Request: f.Request}
}

// Blame says whom a failure concerns.
type Blame uint8

// Nobody: the client, the network to it, or the router itself. OnPrefill: the prefill replica. OnDecode: the
// replica that generates. OnPair: one of the two or the path between them, which cannot be told from one
// failure.
const (
	Nobody Blame = iota
	OnPrefill
	OnDecode
	OnPair
)

// Prefilled notes that the prefill replica gave what can be handed over.
func (pl *Planner) Prefilled(b *Booking, now time.Time) []outlier.Change {
	return b.onPrefill.Good(now)
}

// Decoding notes that the answer has begun well.
func (pl *Planner) Decoding(b *Booking, now time.Time) []outlier.Change {
	changes := b.onDecode.Good(now)
	if b.Mode == Split {
		changes = append(changes, pl.outliers.Began(b.pair(), now)...)
	}
	return changes
}

// Moved notes that the blocks of a split answer came over, or that nothing speaks against it.
func (pl *Planner) Moved(b *Booking, now time.Time) []outlier.Change {
	return pl.outliers.Loaded(b.pair(), now)
}

// Failed holds a failure against whom it concerns.
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

// Excuse takes back what [Planner.Failed] held against somebody: the request is the cause, having failed
// elsewhere too, or nobody knows.
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

// Own notes of what [Planner.Failed] held against somebody that it was rightly: the request has gone well
// elsewhere.
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

// KnownBad reports whether whom the failure concerns is ejected since before the given time, or was and is
// being tried again.
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

// Excused reports whether what failed of late where f was held against was rather the requests' fault.
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
