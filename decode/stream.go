package decode

import (
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
	"github.com/tandem-router/tandem/internal/estimate"
)

// FirstToken records that the first token arrived, or the whole answer if the first token cannot be
// observed. It teaches the speed of a local prefill. Without events it also tells the index that the replica
// has the prompt now.
func (l *Lease) FirstToken(now time.Time) Arrival {
	if l == nil {
		return Arrival{}
	}
	x, first := l.first(now)
	if first {
		l.pool.Await(&l.member.Member, l.entry.Named, now)
		l.pool.RecordComputed(&l.member.Member, l.entry.Named, 0, -1)
		if !l.entry.Local { // else Delivered tells more
			l.pool.Expect(&l.member.Member, l.entry.Named, -1, now)
		}
	}
	return x
}

func (l *Lease) first(now time.Time) (x Arrival, first bool) {
	p := l.pool
	p.members.Lock()
	defer p.members.Unlock()
	if l.entry.PromptState() == ledger.Answered || l.entry.SentAt().IsZero() {
		return Arrival{}, false
	}
	computed := l.entry.Missing()
	l.stream.meanwhile = p.learned.since(&l.stream.begun, l.member, now)
	x.Held, x.Waited = l.stream.meanwhile.Held, l.waits(now)
	if computed {
		p.learned.prefill(l, now) // what its step decoded was without its own sequences
	}
	p.arrive(l, now)
	l.member.account.Answer(&l.entry)
	if computed {
		p.learned.idle(l)
	}
	l.member.endPieces(&l.pieces, now)
	if l.entry.UnseenArrival == 0 {
		l.stream.begun = p.learned.done(l.member, now)
	}
	x.Took = l.begin(now)
	return x, true
}

// waits reports whether l waits, or may have waited, for more than its blocks. An engine that does not
// report which requests load blocks may count l as its waiting request.
func (l *Lease) waits(now time.Time) bool {
	m := l.member
	if l.stream.ahead == behindOthers || l.stream.foreign || m.local.wait(now) > 0 {
		return true
	}
	return m.load.Read(now, l.pool.settings.LoadTTL).Waiting > max(1, m.load.Fetching())
}

// Fetches reports whether l waits for nothing but its blocks: no other reason is known why its engine has
// not begun, and the engine has computed no prompt since l was sent. Safe for concurrent use.
func (l *Lease) Fetches(now time.Time) bool {
	l.pool.members.Lock()
	defer l.pool.members.Unlock()
	held := l.pool.learned.since(&l.stream.begun, l.member, now).Held
	return l.entry.State() < ledger.Ended && !l.waits(now) && held <= estimate.HandoverMost
}
