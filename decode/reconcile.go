package decode

import (
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
	"github.com/tandem-router/tandem/internal/replica"
)

// reconcile counts from the newest report of usage. running is how many sequences of this router the report
// includes.
func (p *Pool) reconcile(m *member, l replica.Load, running int) {
	b, at := &m.account, l.At
	b.CountFrom(m.load.Read(at, p.settings.LoadTTL).Usage, running, at)
	for e := range b.Overdue(at) {
		one := owner(e)
		one.countUnseen()
		p.arriveUnseen(one, at)
	}
	uncovered := b.Cover(running, at)
	b.CountPreempted(&l, uncovered, m.Others.Count+m.remote.Sent, func(e *ledger.Lease) int {
		return p.own(owner(e), at)
	})
	p.expectGrowth(m, at)
}

// countUnseen adds the prompt of l to its replica's computed work. The prompt should be computed by now,
// although its end cannot be observed. It made the steps of other requests longer. The steps of l came after
// it.
func (l *Lease) countUnseen() {
	if l.entry.Local {
		from := l.pieces.Prefix.Tokens()
		l.member.learned.Unseen(&l.stream.begun, l.entry.Tokens-from, from)
	}
}

// expectGrowth tells the account of m what its reported leases are expected to add, now that each has
// generated for longer.
func (p *Pool) expectGrowth(m *member, at time.Time) {
	step := p.learned.perToken(m)
	for _, e := range m.account.Leases() {
		if l := owner(e); e.State() == ledger.Reported {
			p.learned.underway(l, l.generated(step, at), at)
		}
	}
	p.learned.lengths.WorkOut()
	if !at.Before(m.atOnce.at.Add(ProgressEvery)) {
		m.atOnce = atOnce{p.growsAtOnce(m, at), at}
	}
	for _, e := range m.account.Leases() {
		if l := owner(e); e.State() == ledger.Reported {
			told := l.lengths.Told()
			m.account.Grow(e, told, m.atOnce.of(l.expectedGrowth(told)))
		}
	}
}
