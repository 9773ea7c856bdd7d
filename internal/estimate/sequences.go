package estimate

import (
	"cmp"
	"time"
)

// An engine runs a limited number of sequences at once, even with room in its KV cache (--max-num-seqs, 256
// or 1,024 by default). No metric of vLLM 0.32 reports the limit. It shows when requests wait although there
// is room, and the same number runs in each report.

const (
	// equalReports equal reports in a row show the limit. An engine that is busy with long prompts admits no
	// request either, but does not replace ended ones. If none ends, the reports count only after the prompts
	// and more should be computed.
	equalReports  = 3
	computedAfter = 2 * time.Second
	// fewestSequences is a number below which room is more likely the reason: few large requests fit.
	fewestSequences = 8
	// usualSequences is the smallest default of engines of vLLM 0.32, on CPUs.
	usualSequences = 128
	// One more is tried after this time, because the reports may have had another reason. If more run at any
	// time, the limit is disproved. A state that a report shows holds for as long.
	tryMoreAfter = time.Minute
)

// Occupancy is what a load report says of the sequences of a replica.
type Occupancy struct {
	Running int
	Queued  int           // waiting, without those whose KV is on its way
	Usage   float64       // share of the KV cache in use, NaN unknown
	Largest float64       // share of the KV cache that the largest waiting request may take
	Prompts time.Duration // until the prompts that the replica has now should be computed
}

// oneMoreFits reports whether there is room for two more sequences of the usual size, and for the largest
// waiting request. An engine starts its waiting requests in order. While the KV cache has no room for the
// first, no other request starts.
func (o *Occupancy) oneMoreFits() bool {
	return o.Usage*float64(o.Running+2) < float64(o.Running) && // false where the usage is not known
		o.Largest < 1-o.Usage
}

// Sequences is the number of sequences that one replica runs at once. The zero Sequences knows nothing.
type Sequences struct {
	known int       // 0 unknown
	more  int       // tried beyond known
	until time.Time // when one more is tried
	ended int       // requests that have ended there so far
	ran   int       // largest number in any report

	running int       // by the newest report, if requests waited there
	reports int       // reports in a row with the same number
	before  int       // value of ended before the first such report
	by      time.Time // when the prompts that the replica had then should be computed

	full time.Time // time of the newest report with the maximum running and room for more
	used float64   // share of the room in use, by that report
}

// End takes in that a request has ended.
func (s *Sequences) End() { s.ended++ }

// Learn takes in a report.
func (s *Sequences) Learn(o Occupancy, now time.Time) {
	s.ran = max(s.ran, o.Running)
	if s.known > 0 && o.Running > s.known {
		*s = Sequences{ended: s.ended, ran: s.ran}
	}
	if s.known > 0 && now.After(s.until) {
		s.more++
		s.until = now.Add(tryMoreAfter)
	}
	if s.known > 0 && o.Running == s.known && o.oneMoreFits() {
		s.full, s.used = now, o.Usage
	}
	if o.Queued <= 0 || o.Running < fewestSequences || !o.oneMoreFits() {
		s.reports = 0
		return
	}
	if s.reports == 0 || o.Running != s.running {
		s.running, s.reports = o.Running, 1
		s.before, s.by = s.ended, now.Add(o.Prompts+computedAfter)
		return
	}
	if s.reports++; s.reports >= equalReports && (s.ended >= s.before+equalReports-1 || now.After(s.by)) {
		s.known, s.more = s.running, 0
		s.until = now.Add(tryMoreAfter)
		s.full, s.used = now, o.Usage
	}
}

// Measured returns the learned limit, without sequences that are tried beyond it; -1 unknown.
func (s *Sequences) Measured() int {
	if s.known == 0 {
		return -1
	}
	return s.known
}

// Ran returns the largest number of running sequences in any report.
func (s *Sequences) Ran() int { return s.ran }

// Believed returns the present limit as far as it is known, or as the first report suggests with a usual
// number; 0 is unknown. An engine whose steps are full of prompts admits no request either, so the limit is
// never below the number that has run.
//
// most is the largest limit that was learned of a replica of the pool. A replica without a limit of its own
// is taken to run an eighth more, unless it has run more than that already. Without this assumption it would
// attract every request until requests wait there and show the limit.
func (s *Sequences) Believed(most int) int {
	own := s.known + s.more
	if s.known == 0 && s.reports > 0 && s.running >= usualSequences {
		own = s.ran
	}
	if s.ran > most {
		return own
	}
	return cmp.Or(own, most+most/triedMore)
}

// triedMore is the divisor of the additional part.
const triedMore = 8

// Full reports whether the replica ran its maximum of sequences within the last minute although its KV cache
// had room for more, and the share of the cache in use then. It is false if the maximum is unknown.
func (s *Sequences) Full(now time.Time) (used float64, full bool) {
	return s.used, s.known > 0 && !s.full.IsZero() && now.Sub(s.full) <= tryMoreAfter
}
