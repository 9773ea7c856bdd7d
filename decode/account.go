package decode

import (
	"math"
	"time"
)

// account is a member's headroom at one moment, in blocks.
type account struct {
	capacity int  // 0 unknown: then nothing else is known
	most     int  // that may ever be promised
	used     int  // in use or promised, growth included
	free     int  // may be promised; below zero when overbooked
	reserved int  // asked for by those whose prefill should not have begun
	guessed  bool // no fresh report: used is the pool's mean, or our own account if that is more
}

// accountNow works out the headroom of m. What members use on average is asked only where it is not known of
// m itself.
func (p *Pool) accountNow(m *member, now time.Time) account {
	usage, mean := m.load.Read(now, p.settings.LoadTTL).Usage, 0.0
	if math.IsNaN(usage) {
		mean = p.read(now).usage
	}
	return p.account(m, usage, mean)
}

// account works out the headroom of m by the usage that it reports, NaN where its report is too old.
// meanUsage is the share that members use on average, NaN when none reports: it stands for that then.
func (p *Pool) account(m *member, usage, meanUsage float64) account {
	g, e := &m.ledger, &m.remote
	a := account{capacity: m.R.Facts.Blocks, reserved: g.reserved + e.Reserved}
	a.guessed = math.IsNaN(usage)
	if a.capacity == 0 {
		return a
	}
	if a.guessed {
		a.used = g.held + e.Held
		if meanUsage > 0 {
			a.used = max(a.used, int(meanUsage*float64(a.capacity)))
		}
	} else {
		unreported := g.promised + g.growth + g.absent.due + e.Promised + e.Growth
		a.used = max(m.reported()+unreported+p.othersGrow(m)-g.returned-e.Returned, unreported, 0)
	}
	a.most = a.capacity - p.margin(m)
	a.free = a.most - a.used
	return a
}

func (p *Pool) margin(m *member) int {
	return int(math.Ceil(min(max(p.settings.Margin, 0), 1) * float64(m.R.Facts.Blocks)))
}

// othersGrow returns the blocks that requests which are not ours are expected to add: each is taken to be
// half through.
func (p *Pool) othersGrow(m *member) int {
	if m.ledger.others.Count == 0 {
		return 0
	}
	return m.ledger.others.Count * blocksOf(p.lengths.Usual()/2, m.blockSize())
}

// left returns the blocks that could be promised if all reserved leases had theirs.
func (a *account) left() int { return a.free - a.reserved }

// asked returns the room that a request of so many blocks has to find. One that is larger than all that may
// ever be promised has to find the replica empty.
func (a *account) asked(blocks int) int { return min(blocks, a.most) }

// fits reports whether a request of so many blocks may be admitted now.
func (a *account) fits(blocks int) bool { return a.capacity == 0 || a.free >= a.asked(blocks) }
