package decode

import (
	"math"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

// This file is what a usage report does to a ledger: it becomes the account to count from, and it is worked
// out which leases it includes.

// reportDelay is how long after a request was sent a report may still not include it: it has to arrive, be
// scheduled, and the gauge to be set. As long before we see its end a report may include it no longer: an
// answer that is not streamed even brings such a report along.
const reportDelay = 200 * time.Millisecond

// tooSoon reports whether a report that an answer brought along is not counted from, since another was
// counted from just before. Every answer brings one, and each lease is looked at for it: on a replica with
// thousands of answers these looks would be more than all else that is done for a request.
func (g *ledger) tooSoon(l replica.Load) bool {
	more := len(g.leases) - countFreely
	return l.Source == replica.ORCA && more > 0 && l.At.Sub(g.at) < time.Duration(more)*lookEvery
}

const (
	countFreely = 512                   // leases up to which every report is counted from
	lookEvery   = 20 * time.Microsecond // one of those beyond is looked at for what answers bring along
)

// running returns how many sequences hold blocks by l: those that run, and those whose blocks are on their
// way; who merely waits there holds none. A report that an answer brings along does not count them: then it
// is [math.MaxInt], which means all that are ours.
//
// ok is false where l may lack some of ours and does not say how many. An engine whose steps take long brings
// out answers with a usage from before it had heard of the newest requests (vLLM 0.32, measured), so that
// such a report is counted from only where each request that was sent has been heard from.
func (g *ledger) running(l replica.Load) (sequences int, ok bool) {
	if l.Running >= 0 {
		return l.Running + max(l.Loading, 0), true
	}
	return math.MaxInt, g.unheard == 0
}

// reconcile makes the newest report of usage the account to count from. running is what [ledger.running] says
// of it.
func (p *Pool) reconcile(m *member, l replica.Load, running int) {
	g, at := &m.ledger, l.At
	g.usage = m.load.Read(at, p.settings.LoadTTL).Usage
	g.at = at
	g.returned = 0
	if running < g.sent {
		g.sortBySending() // it lacks the newest of ours
	}
	g.assumeArrivals(at)
	uncovered := g.cover(running, at)
	p.countPreempted(m, l, uncovered)
	step := p.stepOf(m) * m.learned.PerToken()
	for _, l := range g.leases {
		if l.state == reported {
			p.learnUnderway(l, l.generated(step, at), at)
		}
	}
	p.lengths.WorkOut()
	if !at.Before(g.atOnceAt.Add(atOnceEvery)) {
		g.atOnce, g.atOnceAt = p.growsAtOnce(m, at), at
	}
	for _, l := range g.leases {
		if l.state == reported {
			told := l.lengths.Told()
			g.grow(l, told, g.atOnce.of(l.expectedGrowth(told)))
		}
	}
}

func (g *ledger) sortBySending() {
	slices.SortFunc(g.leases, func(a, b *Lease) int { return a.stream.sentAt.Compare(b.stream.sentAt) })
	for i, l := range g.leases {
		l.slot = i
	}
}

// mayBeReported reports whether a report of the given time may include l.
func (l *Lease) mayBeReported(at time.Time) bool {
	return l.state >= sent && !l.stream.sentAt.Add(reportDelay).After(at)
}

// assumeArrivals lets answers of whose first token nobody tells count as begun when that should have come,
// and their prompts as arrived after twice the time that was predicted.
func (g *ledger) assumeArrivals(at time.Time) {
	for _, l := range g.leases {
		if l.state < sent || !l.stream.isDue(at) {
			continue
		}
		if !l.stream.due {
			g.sums.count(l, -1)
			l.stream.due = true
			g.sums.count(l, 1)
		}
		if l.mayBeReported(at) && l.stream.overdue(at) {
			l.countUnseen()
			g.arriveUnseen(l, at)
		}
	}
}

// countUnseen counts the prompt of l, which should be there and of which nobody will see it, in what its
// replica has computed: the steps of others were longer for it. Those of l came after it.
func (l *Lease) countUnseen() {
	if l.prompt.state == pending && l.prompt.local {
		from := l.computed()
		l.member.learned.Unseen(&l.stream.begun, l.tokens-from, from)
	}
}

// cover decides which leases a report of so many running sequences includes: those that reports did already,
// and then those that were sent, as they stand in the list, as far as the sequences reach. A prompt that the
// replica is still computing has its part of them and stays promised: an engine takes blocks as it computes,
// so that the report has some of its at most. It returns how many sequences that the engine has got stand in
// none.
func (g *ledger) cover(running int, at time.Time) (uncovered int) {
	for _, l := range g.leases {
		if l.state == reported {
			running -= l.sequences
		}
	}
	g.absent.sequences = max(0, -running)
	for _, l := range g.leases {
		if l.state != sent || !l.mayBeReported(at) {
			continue
		}
		if running < l.sequences {
			uncovered += l.sequences
			continue
		}
		running -= l.sequences
		if !l.prompt.local || l.prompt.state != pending {
			g.move(l, reported)
		}
	}
	return uncovered
}

// countPreempted works out what of the engine's free blocks is due to those that it has preempted: an engine
// that runs out of room takes all blocks of who came last, puts it first in its queue, and takes in nobody
// before it (vLLM, v1/core/sched/scheduler.py). Who waits there and is none of those that it has yet to take
// in, uncovered, was reported before, and runs no more. A report that does not say who runs is counted from
// only where all of ours have been heard from, so that those who wait are such, or others'.
func (p *Pool) countPreempted(m *member, l replica.Load, uncovered int) {
	g := &m.ledger
	waiting := l.Waiting - max(l.Loading, 0) - uncovered
	if l.Running >= 0 {
		waiting = min(waiting, g.absent.sequences)
	} else {
		waiting -= g.others.Count + m.remote.Sent
		g.sortBySending()
	}
	g.absent.due = 0
	for _, one := range slices.Backward(g.leases) {
		if waiting <= 0 {
			return
		}
		if one.state == reported {
			g.absent.due += p.own(one, l.At)
			waiting -= one.sequences
		}
	}
}
