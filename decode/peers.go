package decode

import (
	"time"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/roster"
)

// PeerLoad is what one router reports to others of its own bookings on a replica. They cannot see them
// otherwise: an engine counts requests, and says neither what they will take nor which are on their way.
type PeerLoad struct {
	ID        replica.ID `json:"id,omitzero"`
	Sequences int        `json:"sequences,omitzero"` // of leases that are admitted or further
	Queued    int        `json:"queued,omitzero"`    // of reserved leases
	Arriving  int        `json:"arriving,omitzero"`  // of Sequences, those whose blocks have not come
	Computing int        `json:"computing,omitzero"` // of Sequences, those that still prefill there
	Known     int        `json:"known,omitzero"`     // of the others, those whose tokens are in Context
	Context   int        `json:"context,omitzero"`   // tokens of those
	Sent      int        `json:"bound,omitzero"`     // that the engine has got
	Promised  int        `json:"promised,omitzero"`  // blocks that the report does not include
	Growth    int        `json:"growth,omitzero"`    // blocks that requests in the report will still take
	Returned  int        `json:"returned,omitzero"`  // blocks that have come free since the report
	// Blocks and growth of all leases that are admitted or further.
	Held       int           `json:"held,omitzero"`
	Reserved   int           `json:"soft,omitzero"`       // blocks that reserved leases ask for
	ReservedIn time.Duration `json:"soft_in_ns,omitzero"` // until those are admitted, on average
	Moving     time.Duration `json:"moving_ns,omitzero"`  // for the KV blocks that are to come
	// Until local prefills are done, predicted, were nobody else there.
	Work time.Duration `json:"work_ns,omitzero"`
	// Of these the one that was booked first.
	First      roster.Running `json:"first,omitzero"`
	Pieces     int            `json:"pieces,omitzero"`    // of these, those that are sent in pieces
	PiecesWork time.Duration  `json:"pieces_ns,omitzero"` // that they were predicted to take
	// Share of its time that the replica prefills for this router.
	Rho float64 `json:"rho,omitzero"`
	// Requests a second that this router sends there.
	Arrivals float64 `json:"arrivals,omitzero"`
	// Of these, those whose blocks come from elsewhere.
	InboundRate float64 `json:"inbound_rate,omitzero"`
	// The engine's newest that this router asked for by itself.
	Report *replica.Report `json:"report,omitzero"`
}

// PeerLoads returns what there is to report to other routers, for each member.
func (p *Pool) PeerLoads(now time.Time) []PeerLoad {
	p.members.Lock()
	defer p.members.Unlock()
	p.admitDue(now)
	out := make([]PeerLoad, 0, len(p.members.All))
	for _, m := range p.members.All {
		g := &m.ledger
		s := PeerLoad{
			ID: m.R.ID, Sequences: g.sequences, Queued: g.queued, Arriving: g.arriving,
			Computing: g.computing, Known: g.answering, Context: g.context,
			Sent:     g.sent + m.turns.Asked(),
			Promised: g.promised + g.absent.due, Growth: g.growth, Returned: g.returned, Held: g.held,
			Reserved: g.reserved, ReservedIn: p.reservedIn(m, now), Moving: g.moving, Work: g.local.wait(now),
			First:    roster.RunningOf(g.local.front(), now),
			Rho:      m.learned.Traffic.Prefills.Rho(now),
			Arrivals: m.learned.Traffic.Requests.Rate(now), InboundRate: m.learned.Traffic.Inbound.Rate(now),
			Pieces: g.orders.pieces.n, PiecesWork: time.Duration(g.orders.pieces.weight),
			Report: replica.ReportOf(m.asked, now),
		}
		out = append(out, s.plausible())
	}
	return out
}

// Changes grows with what [Pool.PeerLoads] tells anew, but for what changes by itself as time passes. It may
// do so for nothing, and be less when members have left.
func (p *Pool) Changes() (n uint64) {
	p.members.Lock()
	defer p.members.Unlock()
	for _, m := range p.members.All {
		n += m.ledger.changes
	}
	return n
}

// MergePeer takes in what another router reports now, in place of what it reported before. Without any loads
// the router is forgotten. loads is kept.
func (p *Pool) MergePeer(router string, loads []PeerLoad, now time.Time) {
	p.members.Lock()
	defer p.members.Unlock()
	roster.MergePeer(p.members, &p.peers, router, loads, remoteOf, now, p.hearing(now))
}

// UpdatePeer takes in what another router reports now of some replicas, in place of what it reported of those
// before. It does nothing for a router of which [Pool.MergePeer] has not taken in anything. loads is kept.
func (p *Pool) UpdatePeer(router string, loads []PeerLoad, now time.Time) {
	p.members.Lock()
	defer p.members.Unlock()
	roster.UpdatePeer(p.members, &p.peers, router, loads, remoteOf, now, p.hearing(now))
}

func remoteOf(m *member) *PeerLoad { return &m.remote }

// hearing takes in an engine's report that another router asked for, where it is newer than ours.
func (p *Pool) hearing(now time.Time) func(*member, *replica.Report) {
	return func(m *member, r *replica.Report) {
		if l := r.Load(now); l.At.After(m.load.UsageAt()) {
			p.observe(m, l, now)
		}
	}
}

// About says of which replica s tells, and its report.
func (s *PeerLoad) About() (replica.ID, *replica.Report) { return s.ID, s.Report }

// plausible returns s with each number as far as a replica can have it.
func (s *PeerLoad) plausible() PeerLoad {
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
	return *s == s.plausible() && (s.Report == nil || s.Report.Plausible())
}

// Changed reports whether s tells of other bookings than o, which was told before of the same replica: not of
// what changes by itself as time passes.
func (s *PeerLoad) Changed(o *PeerLoad) bool {
	return s.Sequences != o.Sequences || s.Queued != o.Queued || s.Arriving != o.Arriving ||
		s.Computing != o.Computing || s.Sent != o.Sent ||
		s.Promised != o.Promised || s.Returned != o.Returned || s.Held != o.Held || s.Moving != o.Moving ||
		s.First.Work != o.First.Work || s.PiecesWork != o.PiecesWork
}

// Heard makes each number of s what a replica can have, as it was told now.
func (s *PeerLoad) Heard(now time.Time) {
	*s = s.plausible()
	s.First.Heard(now)
}

// answering returns how many sequences decode, as [stages] counts them. A router of an older version does not
// tell of Computing, Known and Context: all of its sequences are here whose blocks are.
func (s *PeerLoad) answering() int { return max(0, s.Sequences-s.Arriving-s.Computing) }

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

// batch returns how many sequences m has, sent or on their way: ours, those that other routers report, and
// others' by the engine's count.
func (m *member) batch() int {
	return m.ledger.sequences + m.remote.Sequences + m.ledger.others.Count
}
