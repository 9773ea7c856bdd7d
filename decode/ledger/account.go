package ledger

import "time"

// Account is what we promised of the KV blocks of one replica. The zero Account has no leases.
//
// The blocks in use are the engine's own account, by its newest report. Blocks that were promised since then,
// the growth of reported leases and the blocks of preempted requests are added. Blocks that came free since
// then are subtracted.
type Account struct {
	Sums
	orders orders // leases by the time of their next event

	usage    float64   // share of blocks in use by the report that is counted from
	at       time.Time // time of the report
	returned int       // blocks of leases that the report surely includes, and that ended after it
	absent   absent

	leases  []*Lease // that have not ended
	changes uint64   // counts changes of the numbers for other routers
}

// absent is the sequences that an earlier report included and the newest does not.
type absent struct {
	sequences int // may have ended, or been preempted
	due       int // blocks of preempted sequences: the engine serves these sequences before any other
}

// Sums are the sums over the leases of an account, for reading. All sums are integers. So each sum is exact,
// and zero when no lease is left.
type Sums struct {
	Promised  int // blocks and growth of admitted and sent leases: no report includes them
	Growth    int // blocks that reported leases will still take
	Held      int // blocks and growth of both: our own account, if the engine gives none
	Queued    int // sequences of reserved leases
	Sequences int // sequences of admitted, sent and reported leases
	Sent      int // sequences of sent and reported leases: the engine has them
	Unheard   int // sent leases without a first token
	Expecting int // blocks and growth of arriving sequences

	// Parts of Sequences. Arriving sequences wait for KV of another replica. Answering sequences have their
	// prompts, or should have their prompts if the answer is not streamed. The replica has yet to compute the
	// prompts of all other sequences.
	Arriving  int
	Answering int
	Context   int // tokens of answering sequences, by the newest report
}

// Computing returns the sequences whose prompts are still to be computed on the replica.
func (s *Sums) Computing() int { return s.Sequences - s.Arriving - s.Answering }

// count adds what l is worth in its states, times sign: 1 or -1.
func (s *Sums) count(l *Lease, sign int) {
	sequences := sign * l.Sequences
	switch l.state {
	case Reserved:
		s.Queued += sequences
		return
	case Admitted, Sent:
		s.Promised += sign * l.Whole()
	case Reported:
		s.Growth += sign * l.growth
	case Ended:
		return
	}
	s.Held += sign * l.Whole()
	s.Sequences += sequences
	if l.state >= Sent {
		s.Sent += sequences
	}
	if l.state == Sent && l.prompt != Answered {
		s.Unheard += sign
	}
	switch {
	case l.prompt != Pending:
		s.Answering += sequences
		s.Context += sequences * (l.Tokens + l.generated)
	case !l.Local:
		s.Arriving += sequences
		s.Expecting += sign * l.Whole()
	}
}

// count adds l to the sums and lists of b, or takes it out, by sign: 1 or -1.
func (a *Account) count(l *Lease, sign int) {
	a.changes++
	a.Sums.count(l, sign)
	a.orders.count(l, sign)
}

// move makes to the state of l.
func (a *Account) move(l *Lease, to State) {
	a.count(l, -1)
	l.state = to
	a.count(l, 1)
}

// Leases returns the leases that have not ended, for reading. A report may sort them.
func (a *Account) Leases() []*Lease { return a.leases }

// Changes grows with every change of the numbers for other routers.
func (a *Account) Changes() uint64 { return a.changes }

// Changed notes another change of the numbers for other routers.
func (a *Account) Changed() { a.changes++ }

// Reserved returns the blocks and growth of reserved leases.
func (a *Account) Reserved() int { return int(a.orders.reserved.Weight()) }

// ReservedIn returns when the reserved leases are admitted, on average over their blocks.
func (a *Account) ReservedIn(now int64) time.Duration {
	sum := 0.0
	for _, r := range a.orders.reserved.Runs() {
		for _, e := range r.Entries {
			sum += float64(e.Weight) * time.Duration(e.Key-now).Seconds()
		}
	}
	return seconds(sum / float64(max(a.Reserved(), 1)))
}

// Coming returns the KV that is still to come from other replicas, for reading.
func (a *Account) Coming() *Arrivals { return &a.orders.coming }

// Returned returns the blocks that came free since the newest report.
func (a *Account) Returned() int { return a.returned }

// Preempted returns the blocks of preempted sequences: the engine serves these sequences before any other.
func (a *Account) Preempted() int { return a.absent.due }

// ReportedAt returns the time of the report that is counted from.
func (a *Account) ReportedAt() time.Time { return a.at }

// Grow sets the tokens that each sequence of l has generated, and the blocks that l is still expected to
// add.
func (a *Account) Grow(l *Lease, generated, growth int) {
	a.changes++
	a.Sums.count(l, -1)
	l.growth = growth // a reserved lease, whose growth a list weighs, never grows
	l.generated = generated
	a.Sums.count(l, 1)
}

// Arrive notes that the prompt of l is there, or will never be. It reports whether that was not known.
func (a *Account) Arrive(l *Lease) bool {
	if !l.Missing() {
		return false
	}
	a.count(l, -1)
	l.prompt = Arrived
	a.count(l, 1)
	return true
}

// Answer notes that the first token of l came. Its prompt has arrived.
func (a *Account) Answer(l *Lease) {
	a.Sums.count(l, -1)
	a.orders.count(l, -1)
	l.prompt = Answered
	a.orders.count(l, 1)
	a.Sums.count(l, 1)
}

// ComeFree notes that l ends, which the newest report includes, and that own blocks of the engine come free.
// Blocks that are free in this report already are not counted again. A report that is younger than
// reportDelay may show the blocks as free already.
func (a *Account) ComeFree(l *Lease, own int, now time.Time) {
	switch {
	case a.absent.sequences > 0:
		a.absent.sequences = max(0, a.absent.sequences-l.Sequences)
		a.absent.due = max(0, a.absent.due-own)
	case !now.Before(a.at.Add(reportDelay)):
		a.returned += own
	}
}

// InReport returns how many leading tokens of l's prompt another lease that the newest report includes has in
// common with it, at least known.
func (a *Account) InReport(l *Lease, known int) int {
	return a.orders.held.shared(l, known)
}

// Unanswered returns how many leading tokens of l's prompt another lease that the engine has and has not
// answered has in common with it, at least known.
func (a *Account) Unanswered(l *Lease, known int) int {
	return a.orders.unanswered.shared(l, known)
}

// Load returns the part of a [PeerLoad] that a's leases determine. now is on the scale of [Ledger.At].
func (a *Account) Load(now int64) PeerLoad {
	return PeerLoad{
		Sequences: a.Sequences, Queued: a.Queued, Arriving: a.Arriving, Computing: a.Computing(),
		Known: a.Answering, Context: a.Context, Sent: a.Sent,
		Promised: a.Promised + a.absent.due, Growth: a.Growth, Returned: a.returned, Held: a.Held,
		Reserved: a.Reserved(), ReservedIn: a.ReservedIn(now), Moving: a.orders.coming.Moving(),
	}
}
