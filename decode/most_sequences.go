package decode

import (
	"fmt"
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
	"github.com/tandem-router/tandem/internal/replica"
)

// An engine runs a limited number of sequences at once, even with room in its KV cache (--max-num-seqs, 256
// or 1,024 by default). No metric of vLLM 0.32 reports the limit. It shows when requests wait although there
// is room, and the same number runs in each report.

const (
	// equalReports equal reports in a row show the limit. An engine that is busy with long prompts admits no
	// request either, but does not replace ended ones. If none ends, the reports count only after the prompts
	// and more should be computed.
	equalReports = 3
	computed     = 2 * time.Second
	// fewestSequences is a number below which room is more likely the reason: few large requests fit.
	fewestSequences = 8
	// usualSequences is the smallest default of engines of vLLM 0.32, on CPUs.
	usualSequences = 128
	// One more is tried after this time, because the reports may have had another reason. If more run at any
	// time, the limit is disproved.
	tryMoreAfter = time.Minute
	// fullFor is how long the state is shown after a report with the maximum of sequences.
	fullFor = time.Minute
)

// mostSequences is the number of sequences that one replica runs at once. Guarded by the lock of the pool.
type mostSequences struct {
	known int       // 0 unknown
	more  int       // tried beyond known
	until time.Time // when one more is tried
	ended int       // requests of ours that have ended there so far
	ran   int       // largest number in any report

	running int       // by the newest report, if requests waited there
	reports int       // reports in a row with the same number
	before  int       // value of ended before the first such report
	by      time.Time // when the prompts that the replica had then should be computed

	full time.Time // time of the newest report with the maximum running and room for more
	used float64   // share of the room in use, by that report
}

// learn takes in a report of a replica that should have computed its prompts after so long. largest is the
// share of the KV cache that the largest waiting request may take.
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

// learned returns the learned limit, without sequences that are tried beyond it; -1 unknown.
func (s *mostSequences) learned() int {
	if s.known == 0 {
		return -1
	}
	return s.known
}

// SequencesFull returns a sentence if the replica id ran its maximum of sequences within the last minute
// although its KV cache had room for more. It returns "" otherwise, or if the maximum is unknown.
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

// now returns the present limit as far as it is known, or as the first report suggests with a usual number;
// 0 is unknown. An engine whose steps are full of prompts admits no request either, so the limit is never
// below the number that has run.
func (s *mostSequences) now() int {
	if s.known == 0 && s.reports > 0 && s.running >= usualSequences {
		return s.ran
	}
	return s.known + s.more
}

// oneMoreFits reports whether there is room for two more sequences of the usual size, and for the largest
// waiting request. An engine starts its waiting requests in order. While the KV cache has no room for the
// first, no other request starts.
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
	blocks := m.account.Preempted()
	for _, one := range m.account.Leases() {
		if one.AtEngine() && one.PromptState() != ledger.Answered {
			blocks = max(blocks, one.Blocks)
		}
	}
	return float64(blocks) / float64(m.R.Facts.Blocks)
}

// mostOf returns how many sequences m runs at once; 0 is unknown. A limit learned from m comes first.
// Otherwise it is the largest limit of the pool and an eighth more, unless m has run more than that already.
// Without this assumption m would attract every request until requests wait there and show the limit.
func (p *Pool) mostOf(m *member) int {
	if most := m.most.now(); most > 0 || m.most.ran > p.mostRun {
		return most
	}
	return p.mostRun + p.mostRun/triedMore
}

// triedMore is the divisor of the additional part.
const triedMore = 8

// noteMostRun finds the largest learned limit of the members.
func (p *Pool) noteMostRun() {
	p.mostRun = 0
	for _, m := range p.members.All {
		p.mostRun = max(p.mostRun, m.most.known)
	}
}

// runSlotIn returns how long it should take until so many sequences more may run on m, those that are booked
// before them included: 0 where that is now, or where nobody knows how many may.
func (p *Pool) runSlotIn(m *member, a *ledger.Headroom, sequences int) time.Duration {
	most := p.mostOf(m)
	if most == 0 {
		return 0
	}
	over := m.batch() + m.account.Queued + m.remote.Queued + atMost(sequences, most) - most
	if over <= 0 {
		return 0
	}
	return seconds(min(p.slotsIn(m, a, over, most), ledger.MaxRoomWait.Seconds()))
}

// slotsIn returns the seconds until so many of the most sequences that m runs at a time should have ended.
func (p *Pool) slotsIn(m *member, a *ledger.Headroom, sequences, most int) float64 {
	return p.life(m, a) * float64(sequences) / float64(most)
}

// atMost returns how many sequences of a request must run at once: all, as far as the limit of m allows.
func atMost(sequences, most int) int { return max(min(sequences, most), 1) }
