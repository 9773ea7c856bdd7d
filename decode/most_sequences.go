package decode

import (
	"fmt"
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
	"github.com/tandem-router/tandem/internal/replica"
)

// An engine runs so many sequences at a time, however much room its KV cache has (--max-num-seqs, 256 or
// 1,024 by default). No metric of vLLM 0.32 tells how many. It shows where requests wait although there is
// room for them, and as many run in each report.

const (
	// equalReports one after the other tell how many run at most. An engine that is busy with long prompts lets
	// nobody in either, but does not replace those that end; where none ends it is waited for as long as those
	// prompts should take, and computed more.
	equalReports = 3
	computed     = 2 * time.Second
	// fewestSequences is a number below which it is rather the room that is short: of large requests few fit.
	fewestSequences = 8
	// usualSequences is the least that engines of vLLM 0.32 run by default, those on CPUs.
	usualSequences = 128
	// One more is tried after so long, since what was seen may have had another reason. That more run at any
	// time disproves it.
	tryMoreAfter = time.Minute
	// fullFor is how long people are told that it runs all that it may, since a report has shown it.
	fullFor = time.Minute
)

// mostSequences is how many sequences one replica runs at a time. Guarded by the lock of the pool.
type mostSequences struct {
	known int       // 0 unknown
	more  int       // that are tried beyond those
	until time.Time // from when one more is tried
	ended int       // requests of ours that have ended there, so far
	ran   int       // by the report with most of all

	running int       // by the newest report, if requests waited there
	reports int       // so many had the same number, one after the other
	before  int       // of those that ended, before the first of them
	by      time.Time // when the prompts should be computed that the replica had then

	full time.Time // of the newest report with as many running as may, and room for more
	used float64   // share of the room, by that report
}

// learn takes in a report of a replica that should have computed its prompts after so long. largest is the
// share of the KV cache that the largest request takes that may wait there.
func (s *mostSequences) learn(l replica.Load, prompts time.Duration, largest float64, now time.Time) {
	if l.Source != replica.Metrics || l.Running < 0 || l.Waiting < 0 {
		return
	}
	s.ran = max(s.ran, l.Running)
	if s.known > 0 && l.Running > s.known {
		*s = mostSequences{ended: s.ended, ran: s.ran}
	}
	if s.known > 0 && now.After(s.until) {
		s.more++
		s.until = now.Add(tryMoreAfter)
	}
	if s.known > 0 && l.Running == s.known && oneMoreFits(l, largest) {
		s.full, s.used = now, l.Usage
	}
	queued := l.Waiting - max(l.Loading, 0)
	if queued <= 0 || l.Running < fewestSequences || !oneMoreFits(l, largest) {
		s.reports = 0
		return
	}
	if s.reports == 0 || l.Running != s.running {
		s.running, s.reports = l.Running, 1
		s.before, s.by = s.ended, now.Add(prompts+computed)
		return
	}
	if s.reports++; s.reports >= equalReports && (s.ended >= s.before+equalReports-1 || now.After(s.by)) {
		s.known, s.more = s.running, 0
		s.until = now.Add(tryMoreAfter)
		s.full, s.used = now, l.Usage
	}
}

// learned returns how many run at a time as far as that was learned, without those that are tried beyond; -1
// unknown.
func (s *mostSequences) learned() int {
	if s.known == 0 {
		return -1
	}
	return s.known
}

// SequencesFull says that the replica id, within the last minute, has run as many sequences as its engine
// does at a time while its KV cache had room for more; "" where it has not, or nobody knows how many it may.
func (p *Pool) SequencesFull(id replica.ID, now time.Time) (cause string) {
	p.members.Lock()
	defer p.members.Unlock()
	m, ok := p.members.Find(id)
	if !ok || m.most.known == 0 || m.most.full.IsZero() || now.Sub(m.most.full) > fullFor {
		return ""
	}
	return fmt.Sprintf("it runs no more than %d at a time (--max-num-seqs), with %.0f %% of its KV cache in use",
		m.most.known, 100*m.most.used)
}

// now returns how many run at a time, as far as that is known, or suspected by the first report that shows
// it and a number that is usual; 0 is unknown. An engine whose steps are full of prompts lets nobody in
// either: it is not taken to run fewer than it has run.
func (s *mostSequences) now() int {
	if s.known == 0 && s.reports > 0 && s.running >= usualSequences {
		return s.ran
	}
	return s.known + s.more
}

// oneMoreFits reports whether there is room for two more sequences of the usual size, and for the largest
// request that may wait. An engine starts its waiting requests in order. So the first of them lets no other
// request in while the KV cache has no room for the first.
func oneMoreFits(l replica.Load, largest float64) bool {
	return l.Usage*float64(l.Running+2) < float64(l.Running) && // false where the usage is not known
		largest < 1-l.Usage
}

// largestWaiting returns the share of m's KV cache that the largest of the requests takes that may wait there
// by the report l: a request without a first token, or one that was preempted. It is 0 where no request
// waits, where all that wait are requests of others, and where the capacity is not known.
func (m *member) largestWaiting(l replica.Load) float64 {
	if l.Source != replica.Metrics || l.Waiting <= 0 || m.R.Facts.Blocks == 0 {
		return 0
	}
	blocks := m.book.Preempted()
	for _, one := range m.book.Leases() {
		if one.AtEngine() && one.PromptState() != ledger.Answered {
			blocks = max(blocks, one.Blocks)
		}
	}
	return float64(blocks) / float64(m.R.Facts.Blocks)
}

// mostOf returns how many sequences m runs at a time: what was learned of it, and else a part more than what
// was learned of another one of its pool, unless it has run more than that already. Taken to run any number,
// it would get everybody until it shows that it does not; and it shows that only with some who wait there.
// 0 is unknown.
func (p *Pool) mostOf(m *member) int {
	if most := m.most.now(); most > 0 || m.most.ran > p.mostRun {
		return most
	}
	return p.mostRun + p.mostRun/triedMore
}

// triedMore is that part of them.
const triedMore = 8

// noteMostRun works out the most sequences that a member runs at a time, of those of which that was learned.
func (p *Pool) noteMostRun() {
	p.mostRun = 0
	for _, m := range p.members.All {
		p.mostRun = max(p.mostRun, m.most.known)
	}
}

// runSlotIn returns how long it should take until so many sequences more may run on m, those that are booked
// before them included: 0 where that is now, or where nobody knows how many may.
func (p *Pool) runSlotIn(m *member, a *ledger.Account, sequences int) time.Duration {
	most := p.mostOf(m)
	if most == 0 {
		return 0
	}
	over := m.batch() + m.book.Queued + m.remote.Queued + atMost(sequences, most) - most
	if over <= 0 {
		return 0
	}
	return seconds(min(p.slotsIn(m, a, over, most), ledger.MaxRoomWait.Seconds()))
}

// slotsIn returns the seconds until so many of the most sequences that m runs at a time should have ended.
func (p *Pool) slotsIn(m *member, a *ledger.Account, sequences, most int) float64 {
	return p.life(m, a) * float64(sequences) / float64(most)
}

// atMost returns how many of the sequences of a request have to run at a time: all, as far as m runs as many.
func atMost(sequences, most int) int { return max(min(sequences, most), 1) }
