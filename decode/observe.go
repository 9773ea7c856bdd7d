package decode

import (
	"math"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

// Observe takes in a load report of id. Headroom is counted from its usage until the next report.
func (p *Pool) Observe(id replica.ID, l replica.Load, now time.Time) {
	p.about(id, func(m *member) {
		if l.At.IsZero() {
			l.At = now
		}
		if l.Source == replica.Metrics {
			m.asked = l
		}
		if l.Drafts > 0 {
			m.drafted = l.Drafts
		}
		p.observe(m, l, now)
		m.Others.Weigh(l, m.known())
	})
}

func (p *Pool) observe(m *member, l replica.Load, now time.Time) {
	m.load.Add(l)
	p.learned.count(m, now)
	p.rooms.sequences.learn(m, &l, p.members.All, now)
	if len(m.account.Leases()) == 0 { // else a request tries already, see Book
		p.learned.speeds.Ease(&m.learned, now)
	}
	if l.Running >= 0 {
		m.Others.Note(l.Running + max(l.Waiting, 0) - m.known())
	}
	if !math.IsNaN(l.Usage) && m.load.UsageAt().Equal(l.At) && !m.account.TooSoon(&l) {
		p.ledger.AdmitDue(now)
		if running, ok := m.account.Running(&l); ok {
			p.reconcile(m, l, max(0, running-m.local.turns.Asked()))
			m.learned.Decodes(m.decodes())
		}
	}
}
