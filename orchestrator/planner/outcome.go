package planner

import (
	"time"

	"tandem/orchestrator/outlier"
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
}

// Blame says whom a failure concerns.
type Blame uint8

// Nobody: the client, the network to it, or the router itself. OnPrefill: the prefill replica. OnDecode: the replica that generates. OnPair: one of the two or
// the path between them, which cannot be told from one failure.
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
		pl.outliers.Began(b.pair())
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
		return b.onPrefill.Bad(f.Kind, f.Took, now)
	case OnDecode:
		return b.onDecode.Bad(f.Kind, f.Took, now)
	case OnPair:
		return pl.outliers.NotLoaded(b.pair(), f.Kind, now)
	}
	return nil
}

// Excuse takes back what [Planner.Failed] held against somebody: the request has failed elsewhere too, so that it is likely the cause.
func (pl *Planner) Excuse(b *Booking, f Fault, now time.Time) []outlier.Change {
	switch f.On {
	case OnPrefill:
		return b.onPrefill.Excuse(f.Kind, now)
	case OnDecode:
		return b.onDecode.Excuse(f.Kind, now)
	case OnPair:
		return pl.outliers.ExcuseLoad(b.pair(), f.Kind, f.At, now)
	}
	return nil
}

// KnownBad reports whether whom the failure concerns is ejected, or was and is being tried again.
func (pl *Planner) KnownBad(b *Booking, f Fault) bool {
	switch f.On {
	case OnPrefill:
		return pl.outliers.Known(b.Prefill.ID, outlier.Prefill)
	case OnDecode:
		if b.Mode == Local {
			return pl.outliers.Known(b.Decode.ID, outlier.Whole)
		}
		return pl.outliers.Known(b.Decode.ID, outlier.Decode)
	case OnPair:
		return pl.outliers.PairOut(b.pair()) || pl.outliers.Known(b.Decode.ID, outlier.Decode) ||
			pl.outliers.Known(b.Prefill.ID, outlier.Prefill)
	}
	return false
}
