package ledger

import (
	"time"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/roster"
)

// PeerLoad is one router's report to the others of its own bookings on a replica. The engine does not report
// bookings: it counts requests, but neither their future blocks nor the requests on their way.
type PeerLoad struct {
	ID        replica.ID `json:"id,omitzero"`
	Sequences int        `json:"sequences,omitzero"` // of leases that are admitted or further
	Queued    int        `json:"queued,omitzero"`    // of reserved leases
	Arriving  int        `json:"arriving,omitzero"`  // part of Sequences whose blocks have not arrived
	Computing int        `json:"computing,omitzero"` // part of Sequences that is still prefilled there
	Known     int        `json:"known,omitzero"`     // other sequences, with their tokens in Context
	Context   int        `json:"context,omitzero"`   // tokens of Known
	Sent      int        `json:"bound,omitzero"`     // that the engine has got
	Promised  int        `json:"promised,omitzero"`  // blocks that the report does not include
	Growth    int        `json:"growth,omitzero"`    // blocks that requests in the report will still take
	Returned  int        `json:"returned,omitzero"`  // blocks that have come free since the report
	// Blocks and growth of all leases that are admitted or further.
	Held       int           `json:"held,omitzero"`
	Reserved   int           `json:"soft,omitzero"`       // blocks that reserved leases ask for
	ReservedIn time.Duration `json:"soft_in_ns,omitzero"` // until their admission, on average
	Moving     time.Duration `json:"moving_ns,omitzero"`  // for the KV blocks that are to come
	// Predicted time until this router's local prefills are done, without the work of others.
	Work time.Duration `json:"work_ns,omitzero"`
	// The prompt of the local prefills that was booked first.
	First      roster.Running `json:"first,omitzero"`
	Pieces     int            `json:"pieces,omitzero"`    // local prefills that are sent in pieces
	PiecesWork time.Duration  `json:"pieces_ns,omitzero"` // predicted time of the pieces
	// Share of its time that the replica prefills for this router.
	Rho float64 `json:"rho,omitzero"`
	// Requests a second that this router sends there.
	Arrivals float64 `json:"arrivals,omitzero"`
	// Requests a second whose blocks another replica sends.
	InboundRate float64 `json:"inbound_rate,omitzero"`
	// The engine's newest report that this router asked for itself.
	Report *replica.Report `json:"report,omitzero"`
}

// About returns the replica of s, and its engine's report.
func (s *PeerLoad) About() (replica.ID, *replica.Report) { return s.ID, s.Report }

// Possible returns s with each number as far as a replica can have it.
func (s *PeerLoad) Possible() PeerLoad {
	return PeerLoad{
		ID: s.ID, Sequences: roster.Count(s.Sequences), Queued: roster.Count(s.Queued),
		Arriving: roster.Count(s.Arriving), Computing: roster.Count(s.Computing),
		Known: roster.Count(s.Known), Context: roster.Count(s.Context), Sent: roster.Count(s.Sent),
		Promised: roster.Count(s.Promised), Growth: roster.Count(s.Growth),
		Returned: roster.Count(s.Returned), Held: roster.Count(s.Held),
		Reserved: roster.Count(s.Reserved), ReservedIn: roster.Work(s.ReservedIn),
		Moving: roster.Work(s.Moving), Work: roster.Work(s.Work), First: s.First.Plausible(),
		Pieces: roster.Count(s.Pieces), PiecesWork: roster.Work(s.PiecesWork), Rho: roster.Rho(s.Rho),
		Arrivals: roster.PerSecond(s.Arrivals), InboundRate: roster.PerSecond(s.InboundRate), Report: s.Report,
	}
}

// Plausible reports whether s can be true. One that is not counts as far as it can be.
func (s *PeerLoad) Plausible() bool {
	return *s == s.Possible() && (s.Report == nil || s.Report.Plausible())
}

// Changed reports whether s has other bookings than o, an earlier report of the same replica. Numbers that
// change by themselves as time passes do not count.
func (s *PeerLoad) Changed(o *PeerLoad) bool {
	return s.Sequences != o.Sequences || s.Queued != o.Queued || s.Arriving != o.Arriving ||
		s.Computing != o.Computing || s.Sent != o.Sent ||
		s.Promised != o.Promised || s.Returned != o.Returned || s.Held != o.Held || s.Moving != o.Moving ||
		s.First.Work != o.First.Work || s.PiecesWork != o.PiecesWork
}

// Heard limits each number of s to values that a replica can have, and notes the time of the report.
func (s *PeerLoad) Heard(now time.Time) {
	*s = s.Possible()
	s.First.Heard(now)
}

// Decoding returns how many sequences decode, as [Sums] counts them. A router of an older version does not
// report Computing, Known and Context: all its sequences with arrived blocks count.
func (s *PeerLoad) Decoding() int { return max(0, s.Sequences-s.Arriving-s.Computing) }

// Add adds another router's load to s.
func (s *PeerLoad) Add(o *PeerLoad) {
	s.Sequences += o.Sequences
	s.Queued += o.Queued
	s.Arriving += o.Arriving
	s.Computing += o.Computing
	s.Known += o.Known
	s.Context += o.Context
	s.Sent += o.Sent
	s.Promised += o.Promised
	s.Growth += o.Growth
	s.Returned += o.Returned
	s.Held += o.Held
	if o.Reserved > 0 {
		s.ReservedIn += time.Duration(
			float64(o.ReservedIn-s.ReservedIn) * float64(o.Reserved) / float64(s.Reserved+o.Reserved),
		)
		s.Reserved += o.Reserved
	}
	s.Moving += o.Moving
	s.Work += o.Work
	s.First.Join(&o.First)
	s.Pieces += o.Pieces
	s.PiecesWork += o.PiecesWork
	s.Rho += o.Rho
	s.Arrivals += o.Arrivals
	s.InboundRate += o.InboundRate
}
