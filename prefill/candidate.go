package prefill

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/roster"
	"github.com/tandem-router/tandem/scoring"
)

// Query is the question of one request.
type Query struct {
	Model    string
	Tokens   int     // of the prompt, at least 1
	Estimate bool    // Tokens is one: no prompt is too long by it
	Depth    []int32 // what [roster.Roster.Match] said
	// Tokens of a chunk of text by estimate, where Depth counts chunks; 0 where it counts blocks.
	Chunk float64
	Avoid []replica.ID

	Prefills estimate.Speed // measured times of prefills in the other pool; zero: not known
}

// Candidate is a replica that could prefill the request, with all facts that a plan reads. It belongs to the
// query that made it.
//
// Long: a row of facts for one plan. An operator sees most facts.
type Candidate struct {
	scoring.Prefill

	Slot    int // in the View
	Tokens  int // of the prompt
	Matched int // leading tokens that it holds by the index: whole blocks, fewer than Tokens
	// Leading tokens in its price: Matched, or the expected tokens if the replica is Blind.
	Expected int
	Queued   int           // uncached tokens ahead, ours and an estimate of others'
	LoadAge  time.Duration // of the newest report, -1 without any
	Doubtful bool          // its learned speed is old, and no prompt under way would measure it again
	Unknown  bool          // no fresh report: others' load is the pool's mean
	// Its events do not reach us now: Matched is a guess, and may as well be too small as too large.
	Blind bool
	Trust replica.Trust

	// Truncated says that the byte budget made the index drop blocks of the replica. Matched may then be too
	// small, never too large.
	Truncated bool

	member *member
	chunk  float64 // of the query
	adds   float64 // seconds of the prompt's work that lengthen the queue for others
}

// Excluded says why a member is no candidate.
type Excluded struct {
	ID     replica.ID
	Reason string
	Limit  int  // the largest prompt in tokens that it takes, where Tokens is more; else 0
	Ill    bool // it would do, were it not unhealthy, drained or avoided
}

// Candidates appends to dst the replicas that could prefill q, and returns the view that their slots count
// in. Where excluded is not nil it gets all others.
func (p *Pool) Candidates(
	q *Query, now time.Time, dst []Candidate, excluded *[]Excluded,
) ([]Candidate, *View) {
	p.members.Lock()
	defer p.members.Unlock()
	p.learned.Other = q.Prefills
	mean := p.read(now)
	size, matches := p.Unit(), p.Matches(q.Depth, q.Chunk, q.Tokens)
	first := len(dst)
	serves := p.members.Serving(q.Model)
	dst = slices.Grow(dst, len(p.members.All))
	for i, m := range p.members.All {
		if reason, limit := m.unfit(q, serves[i]); reason != "" {
			if excluded != nil {
				*excluded = append(*excluded, Excluded{m.R.ID, m.explain(reason, limit, q), limit, ill(reason)})
			}
			continue
		}
		dst = dst[:len(dst)+1]
		c := &dst[len(dst)-1]
		*c = Candidate{member: m, chunk: q.Chunk}
		p.gather(c, q, &p.readings[i], &matches, mean, now)
	}
	fillArrivals(dst[first:])
	p.expect(dst[first:], q, size, now)
	return dst, p.members.View
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

// Rho returns the share of its time that c's replica is booked with work.
func (p *Pool) Rho(c *Candidate, now time.Time) float64 {
	p.members.Lock()
	defer p.members.Unlock()
	return c.member.rho(now)
}

func (m *member) rho(now time.Time) float64 { return m.meter.Rho(now) + m.remote.Rho }

// expect prices the blind candidates. Unknown is not empty: a blind candidate is expected to hold as much as
// the others on average. If the index still says more about it, the index counts.
func (p *Pool) expect(cs []Candidate, q *Query, blockSize int, now time.Time) {
	mean := roster.MeanMatched(len(cs), func(i int) (int, bool) { return cs[i].Matched, !cs[i].Blind },
		blockSize)
	for i := range cs {
		if c := &cs[i]; c.Blind && c.Matched < mean {
			c.Expected = mean
			speed := p.pricing(c.member, now)
			c.priceMatch(&speed, blockSize)
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

// means is the average load of the members that reported lately. It stands in for the others' load, since an
// unknown load is not an idle replica.
type means struct {
	others   float64 // requests
	usage    float64 // NaN: no member reported
	peersAge float64 // seconds for which other routers may have booked without a report
}

// read reads the reports of all members into p.readings, and returns their means.
func (p *Pool) read(now time.Time) means {
	p.readings = p.readings[:0]
	var others, usage float64
	var reporters, users int
	for _, m := range p.members.All {
		r := m.load.Read(now, p.settings.LoadTTL)
		p.readings = append(p.readings, r)
		if r.Waiting >= 0 {
			others += float64(m.Others.Count)
			reporters++
		}
		if !math.IsNaN(r.Usage) {
			usage += r.Usage
			users++
		}
	}
	return means{
		others: others / float64(max(reporters, 1)), usage: usage / float64(users),
		peersAge: p.peers.Age(now).Seconds(),
	}
}

// gather fills in the facts of c for q.
func (p *Pool) gather(
	c *Candidate, q *Query, reading *replica.Reading, matches *roster.Matches, mean means, now time.Time,
) {
	m := c.member
	c.Slot = m.Slot
	c.Tokens = q.Tokens
	c.Trust = m.Believed()
	c.LoadAge = reading.Age
	c.Leaving = m.pace.Rate(now) + m.remote.Arrivals
	c.Outbox = (m.outbox.Sending() + m.remote.Sending).Seconds()
	c.Blind = q.Chunk == 0 && m.Blind()
	c.Matched = matches.Tokens(&m.Member)
	c.Expected = c.Matched
	c.Truncated = matches.Truncated(&m.Member)
	others := float64(m.Others.Count)
	if reading.Waiting < 0 {
		others, c.Unknown = mean.others, true
	}
	speed := p.pricing(m, now)
	typical := p.typical
	if typical == 0 {
		typical = speed.Prefill(1000, 0)
	}
	// Other routers have booked work since their reports, at their usual rate (seconds a second).
	c.Wait = m.wait(now).Seconds() + others*typical + m.remote.Rho*mean.peersAge
	c.Waiting = float64(m.queue.count+m.remote.Requests) + others
	c.Queued = m.queue.tokens + m.remote.Tokens
	if others > 0 {
		c.Queued += int(others * typical / (speed.Prefill(1000, 0) / 1000))
	}
	c.Doubtful = c.Waiting == 0 && m.doubtful(now)
	c.priceMatch(&speed, p.Unit())
	if c.Wait > 0 { // else no price reads it, see [scoring.Queue.Crowding]
		c.Rho = m.rho(now)
	}
	c.Usage = m.usage(reading.Usage)
	if math.IsNaN(c.Usage) {
		c.Usage, c.Unknown = mean.usage, true
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
