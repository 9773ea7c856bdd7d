package ledger

import (
	"iter"
	"math"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

// This file is what a usage report does to an account: the account counts from the report from now on, and
// works out which leases the report includes.

// reportDelay is the time after the sending of a request in which a report may not include the request yet:
// the request has to arrive and to be scheduled, and the gauge to be set. In the same time before the end of
// an answer, a report may not include the request any more. An answer that is not streamed brings such a
// report.
const reportDelay = 200 * time.Millisecond

const (
	countFreely = 512                   // leases up to which every report is counted from
	lookEvery   = 20 * time.Microsecond // between two reports of answers, for each lease beyond countFreely
)

// TooSoon reports whether the report of an answer is skipped, because another report was used just before.
// Every answer brings a report, and a report is compared with each lease. On a replica with thousands of
// answers the comparison would cost more than all other work for a request.
func (a *Account) TooSoon(l *replica.Load) bool {
	more := len(a.leases) - countFreely
	return l.Source == replica.ORCA && more > 0 && l.At.Sub(a.at) < time.Duration(more)*lookEvery
}

// Running returns how many sequences hold blocks by l: sequences that run, and sequences whose KV is on its
// way. Other waiting sequences hold no blocks. A report in an answer does not count sequences: then Running
// returns [math.MaxInt], for all of ours.
//
// ok is false if l may lack leases of ours and does not say how many. An engine whose steps take long may
// send answers with a usage from before the newest requests arrived (vLLM 0.32, measured). So such a report
// counts only if every request that was sent has had a first token.
func (a *Account) Running(l *replica.Load) (sequences int, ok bool) {
	if l.Running >= 0 {
		return l.Running + max(l.Loading, 0), true
	}
	return math.MaxInt, a.Unheard == 0
}

// CountFrom makes a report of usage at the given time the one to count from. running is how many sequences
// of ours hold blocks by it, as [Account.Running] says. The caller tells of growth and arrivals, and then
// calls [Account.Cover].
func (a *Account) CountFrom(usage float64, running int, at time.Time) {
	a.usage, a.at = usage, at
	a.returned = 0
	if running < a.Sent {
		a.sortBySending() // the report lacks the newest of ours
	}
}

func (a *Account) sortBySending() {
	slices.SortFunc(a.leases, func(x, y *Lease) int { return x.sentAt.Compare(y.sentAt) })
	for i, l := range a.leases {
		l.slot = i
	}
}

// Overdue yields the leases whose prompts count as arrived without a seen token: twice the predicted time has
// passed at the time of a report. The caller calls [Account.Arrive] for each. Leases of answers that are not
// streamed count as answering from the predicted arrival of their prompts on.
func (a *Account) Overdue(at time.Time) iter.Seq[*Lease] {
	return func(yield func(*Lease) bool) {
		for _, l := range a.leases {
			if l.state < Sent || !l.Missing() || !l.isDue(at) {
				continue
			}
			a.markDue(l)
			if l.mayBeReported(at) && l.overdue(at) && !yield(l) {
				return
			}
		}
	}
}

// markDue lets l count as answering.
func (a *Account) markDue(l *Lease) {
	if l.prompt == Pending {
		a.Sums.count(l, -1)
		l.prompt = Due
		a.Sums.count(l, 1)
	}
}

// Cover decides which leases a report with so many running sequences includes. First come the leases that
// were reported already, then sent leases in the order of the list, as far as the sequences reach. A prompt
// that the replica is still computing has its part of the sequences and stays promised: an engine takes
// blocks as it computes, so the report has only a part of its blocks. Cover returns how many sequences of
// the engine are not included.
func (a *Account) Cover(running int, at time.Time) (uncovered int) {
	for _, l := range a.leases {
		if l.state == Reported {
			running -= l.Sequences
		}
	}
	a.absent.sequences = max(0, -running)
	for _, l := range a.leases {
		if l.state != Sent || !l.mayBeReported(at) {
			continue
		}
		if running < l.Sequences {
			uncovered += l.Sequences
			continue
		}
		running -= l.Sequences
		if !l.Local || !l.Missing() {
			a.move(l, Reported)
		}
	}
	return uncovered
}

// CountPreempted works out which free blocks of the engine are due to sequences that it has preempted. An
// engine without room takes all blocks of the newest sequence, puts it first in its queue, and takes in no
// other before it (vLLM, v1/core/sched/scheduler.py). A waiting sequence that the engine has yet to take in
// is among uncovered. Another waiting sequence was reported before and runs no more: it was preempted. A
// report without running sequences is used only if all our leases have had an answer. So the waiting
// sequences of this report are preempted sequences, or belong to the others known requests of other clients.
// own returns the blocks of one lease.
func (a *Account) CountPreempted(l *replica.Load, uncovered, others int, own func(*Lease) int) {
	waiting := l.Waiting - max(l.Loading, 0) - uncovered
	if l.Running >= 0 {
		waiting = min(waiting, a.absent.sequences)
	} else {
		waiting -= others
		a.sortBySending()
	}
	a.absent.due = 0
	for _, one := range slices.Backward(a.leases) {
		if waiting <= 0 {
			return
		}
		if one.state == Reported {
			a.absent.due += own(one)
			waiting -= one.Sequences
		}
	}
}
