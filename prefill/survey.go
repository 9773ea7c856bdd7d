package prefill

import (
	"fmt"
	"math"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/roster"
)

// survey is a query with what holds for all members. It computes the facts of the candidates.
type survey struct {
	*Query
	learned *lessons
	now     time.Time
	mean    means
	unit    int // tokens of a block of the index
	matches roster.Matches
	taken   []int32 // blocks in the GPU memory of each holder
	returns float64 // chance that an evicted block is needed soon
}

// means is the average load of the members that reported lately. It stands in for the others' load, since an
// unknown load is not an idle replica.
type means struct {
	others   float64 // requests
	usage    float64 // NaN: no member reported
	peersAge float64 // seconds for which other routers may have booked without a report
}

// fillArrivals sets the rate at which requests are assumed to come to each candidate: its own rate, and at
// least the mean of all candidates. A replica may get few requests because of its queue. By its own rate
// alone, a second of work there would delay few requests. All long prompts would then go to the replica
// whose queue keeps short prompts away.
func fillArrivals(cs []Candidate) {
	sum := 0.0
	for i := range cs {
		sum += cs[i].Leaving
	}
	for i := range cs {
		cs[i].Arrivals = max(cs[i].Leaving, sum/float64(len(cs)))
	}
}

func (m *member) rho(now time.Time) float64 { return m.meter.Rho(now) + m.remote.Rho }

// expect prices the blind candidates. Unknown is not empty: a blind candidate is expected to hold as much as
// the others on average. If the index still says more about it, the index counts.
func (q *survey) expect(cs []Candidate) {
	mean := roster.MeanMatched(len(cs), func(i int) (int, bool) { return cs[i].Matched, !cs[i].Blind }, q.unit)
	for i := range cs {
		if c := &cs[i]; c.Blind && c.Matched < mean {
			c.Expected = mean
			speed := c.member.pricing(q.learned.of(c.member), q.now)
			c.priceMatch(&speed, q.unit)
		}
	}
}

// pull lets each candidate pull blocks of the prompt from another engine if that is faster than computing
// them.
func (q *survey) pull(cs []Candidate) {
	if len(q.Pulls.Sources) == 0 {
		return
	}
	for i := range cs {
		c := &cs[i]
		lesson, m := q.learned.of(c.member), c.member
		speed := m.pricing(lesson, q.now)
		read := lesson.Arriving(&m.learned, q.now)
		best := q.Pulls.Best(m.R, c.Expected, c.Tokens, c.Warm, read, func(from int) float64 {
			return speed.Prefill(c.Tokens-from, from)
		})
		if best.Replica != nil {
			c.Source = best.Source
			c.Pull, c.Warm = best.Took, best.Warm
			c.adds = best.Warm - speed.Speed.Shared(c.Tokens-best.Tokens)
		}
	}
}

// priceMatch fills in what the prompt costs behind the tokens that are expected to be there.
func (c *Candidate) priceMatch(speed *estimate.Pricing, blockSize int) {
	c.Warm = speed.Prefill(c.Tokens, 0)
	if c.Expected > 0 {
		c.Blocks = float64(c.Expected / blockSize)
		c.Warm = min(c.Warm, speed.Prefill(c.Tokens-c.Expected, c.Expected))
	}
	c.adds = c.Warm - speed.Speed.Shared(c.Tokens-c.Expected)
}

// unfit returns why m is no candidate, "" where it is one. limit is set when the prompt is too long for it.
func (m *member) unfit(q *Query, serves bool) (reason string, limit int) {
	f := &m.R.Facts
	switch {
	case !serves:
		return "does not serve the model", 0
	case !q.Estimate && f.MaxModelLen > 0 && q.Tokens >= f.MaxModelLen:
		// The one token of the prefill leg must fit.
		return tooLong, f.MaxModelLen - 1
	case !q.Estimate && f.Blocks > 0 && f.BlockSize > 0 && q.Tokens > f.Blocks*f.BlockSize:
		return tooLong, f.Blocks * f.BlockSize
	case !m.Healthy:
		return unhealthy, 0
	case m.R.Draining:
		return roster.Draining, 0
	case m.Avoided(q.Avoid):
		return failedBefore, 0
	}
	return "", 0
}

// Reasons that mean something to the code.
const (
	tooLong      = "prompt too long"
	unhealthy    = "unhealthy"
	failedBefore = "failed this request before"
)

// ill reports whether a reason is not for good: a member with it would do at another time.
func ill(reason string) bool {
	return reason == unhealthy || reason == failedBefore || reason == roster.Draining
}

func (m *member) explain(reason string, limit int, q *Query) string {
	switch {
	case reason == tooLong:
		return fmt.Sprintf("takes prompts of at most %d tokens, not %d", limit, q.Tokens)
	case reason == unhealthy && m.Reason != "":
		return m.Reason
	}
	return reason
}

// gather fills in the facts of c.
func (q *survey) gather(c *Candidate, reading *replica.Reading) {
	m := c.member
	c.Slot = m.Slot
	c.Tokens = q.Tokens
	c.Trust = m.Believed()
	c.LoadAge = reading.Age
	c.Leaving = m.pace.Rate(q.now) + m.remote.Arrivals
	c.Outbox = (m.outbox.Sending() + m.remote.Sending).Seconds()
	c.Blind = q.Chunk == 0 && m.Blind()
	c.Matched = q.matches.Tokens(&m.Member)
	c.Below = q.matches.Below(&m.Member, q.Query.Below)
	c.Expected = c.Matched
	c.Truncated = q.matches.Truncated(&m.Member)
	others := float64(m.Others.Count)
	if reading.Waiting < 0 {
		others, c.Unknown = q.mean.others, true
	}
	lesson := q.learned.of(m)
	speed, typical := m.pricing(lesson, q.now), lesson.Also.seconds
	if typical == 0 {
		typical = speed.Prefill(1000, 0)
	}
	// Other routers have booked work since their reports, at their usual rate (seconds a second).
	c.Wait = m.wait(q.now).Seconds() + others*typical + m.remote.Rho*q.mean.peersAge
	c.Waiting = float64(m.queue.count+m.remote.Requests) + others
	c.Queued = m.queue.tokens + m.remote.Tokens
	if others > 0 {
		c.Queued += int(others * typical / speed.Usual(1))
	}
	c.Doubtful = c.Waiting == 0 && m.doubtful(q.now)
	c.priceMatch(&speed, q.unit)
	c.Read = lesson.Reading(&m.learned, c.Below.Tiers(), q.now)
	if c.Wait > 0 { // else no price reads it, see [scoring.Queue.Crowding]
		c.Rho = m.rho(q.now)
	}
	c.Usage = m.usage(reading.Usage)
	if math.IsNaN(c.Usage) {
		c.Usage, c.Unknown = q.mean.usage, true
	}
}

// usage returns the share of KV in use: the reported share, and the prompts sent since the report.
func (m *member) usage(reported float64) float64 {
	u := reported
	if room := m.R.Facts.Blocks * m.R.Facts.BlockSize; room > 0 {
		u = min(1, u+float64(m.queue.fresh+m.remote.Fresh)/float64(room))
	}
	return u
}

// evicts returns the seconds to compute again what c's replica would evict for the prompt and need soon.
func (q *survey) evicts(c *Candidate) float64 {
	m := c.member
	if q.returns == 0 || q.Chunk > 0 || c.Blind || c.Truncated || int(m.Holder) >= len(q.taken) ||
		m.R.Facts.Blocks == 0 {
		return 0
	}
	fresh := (c.Tokens+q.unit-1)/q.unit - c.Expected/q.unit
	short := fresh + int(q.taken[m.Holder]) - (m.R.Facts.Blocks - 1)
	if short <= 0 {
		return 0
	}
	speed := m.pricing(q.learned.of(m), q.now)
	return speed.Usual(q.returns * float64(min(fresh, short)*q.unit))
}
