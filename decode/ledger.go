package decode

import (
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

// ledger is what we promised of one replica's KV blocks. Guarded by the lock of the pool.
//
// Free blocks are the engine's own account (capacity less usage at its newest report) less what is promised
// since, less growth and what preempted requests had, plus what has been returned since. What is promised and
// what only grows is decided by the state of each lease, see [state].
type ledger struct {
	// What every plan asks of every member stands together.
	sums
	others   replica.OtherRequests
	usage    float64       // share of blocks in use by the report that is counted from
	returned int           // blocks of leases that the report surely includes and that ended since
	orders   orders        // leases by when what of them happens
	local    localPrefills // leases whose prompts are to be computed here

	leases  []*Lease  // that have not ended
	changes uint64    // of what is told to other routers, so far
	at      time.Time // of the report that is counted from

	atOnce   atOnce
	atOnceAt time.Time // when it was worked out
	absent   absent
}

// absent is what was reported once, and which the newest report has no more.
type absent struct {
	sequences int // of whose end we have yet to hear, if they have ended
	due       int // blocks of those that were preempted: the engine gives them back before it takes in others
}

// sums is what the leases of a ledger add up to. Only [sums.count] writes them, so that each is at any time
// what a walk over the leases would find, and exactly zero when no lease is left: all are integers.
type sums struct {
	stages
	reserved  int           // blocks asked for by reserved leases
	promised  int           // blocks and growth of admitted and sent leases, which no report includes
	growth    int           // blocks that reported leases will still take
	held      int           // blocks and growth of all these: our own account, where the engine gives none
	queued    int           // sequences of reserved leases
	sequences int           // sequences of admitted, sent and reported leases
	sent      int           // sequences of sent and reported leases: the engine has got them
	unheard   int           // sent leases that have not been heard from
	engaged   int           // leases of whose prompts the engine is to compute something, whatever waits here
	moving    time.Duration // for all KV blocks that are still to come, in any state
	expecting int           // blocks and growth of arriving sequences
}

// stages is where the prompts of admitted, sent and reported sequences are.
type stages struct {
	computing int // sequences whose prompts are still to be computed here
	arriving  int // those whose KV blocks are still to come from another replica
	answering int // those whose prompts are there, or should be where nobody tells of the first token
	context   int // tokens of these, by the newest report
}

// count adds what l is worth as it is now, times sign: 1 or -1.
func (s *sums) count(l *Lease, sign int) {
	sequences := sign * l.sequences
	switch l.state {
	case reserved:
		s.reserved += sign * l.whole()
		s.queued += sequences
	case admitted, sent:
		s.promised += sign * l.whole()
	case reported:
		s.growth += sign * l.growth
	case ended:
		return
	}
	if l.state != reserved {
		s.held += sign * l.whole()
		s.sequences += sequences
	}
	if l.state >= sent {
		s.sent += sequences
	}
	if l.state == sent && l.prompt.state != answered {
		s.unheard += sign
	}
	if l.engages() {
		s.engaged += sign
	}
	s.countPrompt(l, sign)
}

// countPrompt is the part of count that depends on whether the prompt of l is there.
func (s *sums) countPrompt(l *Lease, sign int) {
	sequences := sign * l.sequences
	if l.prompt.state == pending && !l.prompt.local {
		s.moving += time.Duration(sign) * l.prompt.inbound.transfer
	}
	switch {
	case l.state == reserved:
	case l.prompt.state != pending || l.stream.due:
		s.answering += sequences
		s.context += sequences * (l.tokens + l.stream.generated)
	case l.prompt.local:
		s.computing += sequences
	default:
		s.arriving += sequences
		s.expecting += sign * l.whole()
	}
}

// count adds l to what g sums up and to its orders, or takes it away.
func (g *ledger) count(l *Lease, sign int) {
	g.changes++
	g.sums.count(l, sign)
	g.orders.count(l, sign)
}

// whole returns the blocks that l takes, with its growth.
func (l *Lease) whole() int { return l.blocks - l.inUse + l.growth }

// move makes to the state of l.
func (g *ledger) move(l *Lease, to state) {
	g.count(l, -1)
	l.state = to
	g.count(l, 1)
}

// grow makes growth the blocks that l is still expected to add, where each sequence has so many tokens.
func (g *ledger) grow(l *Lease, generated, growth int) {
	g.changes++
	g.sums.count(l, -1)
	l.growth = growth // that of a reserved lease, which an order weighs, never changes
	l.stream.generated = generated
	g.sums.count(l, 1)
}

// answer notes that the first token of l came.
func (g *ledger) answer(l *Lease, now time.Time) {
	g.arrive(l, now)
	g.sums.count(l, -1)
	g.orders.count(l, -1)
	l.prompt.state = answered
	g.orders.count(l, 1)
	g.sums.count(l, 1)
}

// arrive notes that the prompt of l is there, or never will be.
func (g *ledger) arrive(l *Lease, now time.Time) {
	if l.prompt.state != pending {
		return
	}
	g.count(l, -1)
	l.prompt.state = arrived
	g.count(l, 1)
	if l.prompt.local {
		g.local.remove(l, now)
		return
	}
	l.prompt.inbound.from.Add(-l.prompt.inbound.transfer)
}

// arriveUnseen is arrive where nobody has seen whether and when the prompt of l was there.
func (g *ledger) arriveUnseen(l *Lease, now time.Time) {
	if l.prompt.state != pending {
		return
	}
	g.arrive(l, now)
	if l.prompt.local {
		l.member.learned.GaveUp(g.local.none())
	}
}

// add enters l as reserved or admitted.
func (p *Pool) add(l *Lease, now time.Time) {
	g := &l.member.ledger
	if p.booked == 0 {
		p.epoch = now
	}
	p.booked++
	l.id = p.booked
	l.slot = len(g.leases)
	g.leases = append(g.leases, l)
	l.state = admitted
	if l.reservation.admitAt.After(now) {
		l.state = reserved
		p.reserved.Add(l)
	}
	if l.prompt.local {
		g.local.add(l, now)
		g.count(l, 1)
		return
	}
	g.count(l, 1)
	l.prompt.inbound.place = l.prompt.inbound.from.Add(l.prompt.inbound.transfer)
}

// end takes l out of all lists and sums, once.
func (p *Pool) end(l *Lease, now time.Time) {
	g := &l.member.ledger
	switch l.state {
	case ended:
		return
	case reserved:
		p.reserved.Remove(l)
	case reported:
		p.comeFree(l, now)
	}
	p.count(l.member, now)
	g.arriveUnseen(l, now)
	p.lengths.Leave(&l.lengths)
	if l.state >= sent {
		l.member.most.ended++
	}
	g.move(l, ended)
	l.member.learned.Decodes(l.member.decodes())
	l.endPieces(now)
	l.member.beside.End(&l.stream.read)
	last := g.leases[len(g.leases)-1]
	g.leases[l.slot], last.slot = last, l.slot
	g.leases[len(g.leases)-1] = nil
	g.leases = g.leases[:len(g.leases)-1]
	if len(g.leases) == 0 {
		g.absent.due = 0
	}
}

// comeFree notes what the engine has back when l, which its newest report includes, ends: nothing that this
// report has back already. A report of less than reportDelay ago may have it back as well.
func (p *Pool) comeFree(l *Lease, now time.Time) {
	g := &l.member.ledger
	switch {
	case g.absent.sequences > 0:
		g.absent.sequences = max(0, g.absent.sequences-l.sequences)
		g.absent.due = max(0, g.absent.due-p.own(l, now))
	case !now.Before(g.at.Add(reportDelay)):
		g.returned += p.own(l, now)
	}
}

// own returns the blocks that the engine surely has back when l ends: those that no other request shares. It
// may have found the first of them there, and others may have found those that it brought.
func (p *Pool) own(l *Lease, now time.Time) int {
	size, shared := l.member.blockSize(), l.member.ledger.orders.held.shared(l, l.matched)
	return max(0, l.blocks-shared/size) + l.sequences*(blocksOf(l.has(p.generated(l, now)), size)-l.blocks)
}
