package decode

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"tandem/internal/kv"
	"tandem/internal/replica"
	"tandem/internal/roster"
	"tandem/scoring"
)

// Query is the question of one request.
type Query struct {
	Model     string
	Tokens    int  // of the prompt, at least 1
	Estimate  bool // Tokens is one: nobody is too small for it
	MaxTokens int  // new tokens of each sequence, 0 no limit
	Sequences int  // below 1 counts as 1
	Keys      []kv.Key
	// Tokens of a chunk of text by estimate, where Keys are of chunks; 0 where they are of blocks.
	Chunk  float64
	Depth  []int32 // what [roster.Roster.Match] said of Keys
	Avoid  []replica.ID
	Ready  time.Duration // until a prefill replica can have computed it
	Seeded bool          // price by what the operator says, or the profile, and by nothing that was learned

	// Beside is who has the request now, where it asks for another one: candidates are compared with it, too.
	Beside replica.ID
}

// Candidate is a replica that could decode the request now, with all that is known of it. It belongs to the
// query that made it.
type Candidate struct {
	scoring.Decode

	Slot    int // in the View
	Matched int // leading tokens that the index says it holds, whole blocks and less than Tokens
	// Leading tokens that it is priced with: Matched, or what is expected of a replica that is Blind.
	Expected int
	Need     int           // blocks for the prompt and its expected answer
	Free     int           // blocks that may be promised, -1 where the capacity is unknown
	Reserved int           // blocks asked for by requests still in a prefill queue
	LoadAge  time.Duration // of the newest report, -1 without any
	// There will be room when its blocks come, but there is none yet for who prefills here.
	Crowded bool
	// The speed of its own prefills was learned, but of nothing new, and none is under way that could tell.
	Doubtful bool
	Unknown  bool // no fresh report: what it uses is the pool's mean
	// Its events do not reach us now: Matched is a guess, and may as well be too small as too large.
	Blind bool
	Trust replica.Trust

	// BesideLater is what Later would be of who has the request now ([Query.Beside]), 0 where nobody has.
	BesideLater float64

	// Truncated says that blocks of it were dropped from the index for the byte budget: Matched may be too
	// small, never too large.
	Truncated bool

	member *member
	blocks int // of Need, those of the prompt
	limit  int // new tokens of a sequence, -1 none
	speed  scoring.Speed
	used   float64 // tokens in its cache, or promised
	answer float64 // tokens that one sequence is expected to generate
}

// Excluded says why a member is no candidate.
type Excluded struct {
	ID     replica.ID
	Reason string
	Limit  int           // the largest prompt in tokens that it ever takes, where Tokens is more; else 0
	Room   time.Duration // when it should have room, where it has none now; else 0
	// Of all its blocks, what the request would take, where it has no room; above 1 it waits until it is empty.
	Part float64
}

// Rejected sums up the members that are no candidates.
type Rejected struct {
	Full    int           // without room now
	Retry   time.Duration // until the first of those should have room
	Matched int           // the most leading tokens that one of those holds, by an index that is not blind
	Blind   int           // how many of those are blind
	Small   int           // too small for the prompt for good
	Ill     int           // would do, were they not unhealthy or avoided
	Limit   int           // the largest prompt that one of the small takes
}

// Candidates appends to dst the replicas that could decode q now, and returns the view that their slots count
// in. Where excluded is not nil it gets all others.
func (p *Pool) Candidates(
	q *Query, now time.Time, dst []Candidate, excluded *[]Excluded,
) ([]Candidate, *View, Rejected) {
	p.members.Lock()
	defer p.members.Unlock()
	p.admitDue(now)
	var rejected Rejected
	s := survey{Query: q, now: now, mean: p.read(now), matches: p.Matches(q.Depth, q.Chunk, q.Tokens)}
	answer := p.answerOf(q)
	first := len(dst)
	for i, m := range p.members.All {
		verdict, e := m.unfit(q), Excluded{ID: m.R.ID}
		var need, free int
		if verdict == fit {
			dst = append(dst, Candidate{member: m})
			c := &dst[len(dst)-1]
			a := &p.standings[i].account
			c.blocks, c.Need, c.limit = m.need(q, &answer)
			if p.admits(m, a, c.Need, q.Ready, now) {
				c.Crowded = !a.fits(c.Need)
				p.gather(c, &s, &p.standings[i], answer.rest)
				continue
			}
			e.Room = clampRetry(p.roomIn(m, a, a.asked(c.Need)-a.left()) - q.Ready)
			need, free = c.Need, max(a.left(), 0)
			e.Part = float64(need) / float64(max(m.R.Facts.Blocks, 1))
			rejected.hold(m, q, s.matches.Tokens(&m.Member))
			dst = dst[:len(dst)-1]
		}
		rejected.note(&e, verdict, m)
		if excluded != nil {
			e.Reason = m.explain(verdict, e.Limit, q)
			if verdict == fit {
				e.Reason = fmt.Sprintf("has room for %d blocks, not %d", free, need)
			}
			*excluded = append(*excluded, e)
		}
	}
	p.expect(dst[first:], q, now)
	fillFirst(dst[first:])
	if !q.Seeded {
		p.compare(dst[first:], q.Beside, now)
	}
	return dst, p.members.View, rejected
}

// Below returns how many of the leading tokens that c holds lie below the engine's own memory only, by the
// depth that [roster.Roster.MatchBelow] gave.
func (p *Pool) Below(c *Candidate, q *Query, depth []int32) int {
	p.members.Lock()
	defer p.members.Unlock()
	matches := p.Matches(depth, 0, q.Tokens)
	return matches.Tokens(&c.member.Member)
}

// fillFirst fills in the step that makes the first token of blocks which came: the mean of the candidates'
// steps, since who is faster is priced elsewhere, as far as that is known.
func fillFirst(cs []Candidate) {
	sum := 0.0
	for i := range cs {
		sum += cs[i].Decode.Step
	}
	for i := range cs {
		cs[i].Decode.First = sum / float64(len(cs))
	}
}

// expect prices the blind candidates: unknown is not empty, so that each is expected to hold as much as the
// others do on average, or what the index still says of it where that is more.
func (p *Pool) expect(cs []Candidate, q *Query, now time.Time) {
	size := p.Unit()
	mean := roster.MeanMatched(len(cs), func(i int) (int, bool) { return cs[i].Matched, !cs[i].Blind }, size)
	for i := range cs {
		if c := &cs[i]; c.Blind && c.Matched < mean {
			c.Expected = mean
			speed := p.pricing(c.member, q, now)
			c.priceMatch(q, &speed, size)
		}
	}
}

type verdict uint8

const (
	fit verdict = iota
	ill
	otherModel
	avoided
	tooSmall
)

func (m *member) unfit(q *Query) verdict {
	switch {
	case !m.R.Serves(q.Model):
		return otherModel
	case !q.Estimate && q.Tokens > m.largest():
		return tooSmall
	case !m.Healthy:
		return ill
	case m.Avoided(q.Avoid):
		return avoided
	}
	return fit
}

// Bookable returns the most tokens that an estimate may book for a prompt of model: what fits the largest
// context and half of the largest replica. More could be wrong by any factor, and would wait for a replica to
// be all but empty, with everybody behind it.
func (p *Pool) Bookable(model string) int {
	p.members.Lock()
	defer p.members.Unlock()
	most := 0
	for _, m := range p.members.All {
		if m.R.Serves(model) {
			most = max(most, min(m.largest(), m.capacity()/2))
		}
	}
	return cmp.Or(most, math.MaxInt)
}

// capacity returns the tokens that m holds, as far as it is known.
func (m *member) capacity() int {
	if n := m.R.Facts.Blocks; n > 0 {
		return n * m.blockSize()
	}
	return math.MaxInt
}

// largest returns the most prompt tokens that m ever takes: one new token must fit as well.
func (m *member) largest() int {
	limit := math.MaxInt
	if n := m.R.Facts.MaxModelLen; n > 0 {
		limit = n - 1
	}
	return min(limit, m.capacity()-1)
}

func (o *Rejected) note(e *Excluded, v verdict, m *member) {
	switch {
	case v == fit:
		o.Full++
		if o.Retry == 0 || e.Room < o.Retry {
			o.Retry = e.Room
		}
	case v == ill || v == avoided:
		o.Ill++
	case v == tooSmall:
		o.Small++
		e.Limit = m.largest()
		o.Limit = max(o.Limit, e.Limit)
	}
}

func (m *member) explain(v verdict, limit int, q *Query) string {
	switch v {
	case ill:
		if m.Reason != "" {
			return m.Reason
		}
		return "unhealthy"
	case otherModel:
		return "does not serve the model"
	case avoided:
		return "failed this request before"
	case tooSmall:
		return fmt.Sprintf("takes prompts of at most %d tokens, not %d", limit, q.Tokens)
	}
	return ""
}

// answer is the expected length of one sequence, remembered for the limit that it was asked for last: members
// hardly ever differ.
type answer struct {
	lengths     *scoring.OutputLength
	limit, rest int
	known       bool
}

func (p *Pool) answerOf(q *Query) answer {
	if l := p.lengths[q.Model]; l != nil {
		return answer{lengths: l}
	}
	return answer{lengths: &p.answers}
}

func (a *answer) within(limit int) int {
	if !a.known || a.limit != limit {
		a.limit = limit
		a.rest = a.lengths.Rest(0, limit)
		a.known = true
	}
	return a.rest
}

// need returns the blocks of the prompt, those with the expected answer, and the limit of new tokens.
func (m *member) need(q *Query, expected *answer) (prompt, whole, limit int) {
	limit = -1
	if q.MaxTokens > 0 {
		limit = q.MaxTokens
	}
	if n := m.R.Facts.MaxModelLen; n > 0 && (limit < 0 || n-q.Tokens < limit) {
		limit = max(0, n-q.Tokens)
	}
	size := m.blockSize()
	prompt = blocksOf(q.Tokens, size)
	growth := blocksOf(m.slots(q.Tokens+expected.within(limit)), size) - prompt
	return prompt, prompt + max(q.Sequences, 1)*growth, limit
}

// hold notes what a member without room has of the prompt.
func (o *Rejected) hold(m *member, q *Query, tokens int) {
	if q.Chunk == 0 && m.Blind() {
		o.Blind++
		return
	}
	o.Matched = max(o.Matched, tokens)
}

// standing is what a member reports and what it has promised, at one moment and whatever is asked.
type standing struct {
	replica.Reading
	account
}

// means is the load of the members that reported lately: what is assumed of the others, since unknown is not
// idle.
type means struct {
	usage  float64 // share in use or promised, NaN: nobody reported
	others float64 // requests that are not ours
}

// read fills p.standings with those of all members, and returns the means.
func (p *Pool) read(now time.Time) means {
	p.standings = p.standings[:0]
	var usage, others float64
	var users, reporters int
	for _, m := range p.members.All {
		s := standing{Reading: m.load.Read(now, p.settings.LoadTTL)}
		if !math.IsNaN(s.Usage) {
			s.account = p.account(m, s.Usage, 0)
			usage += s.share(s.used)
			users++
		}
		if s.Running >= 0 {
			others += float64(m.ledger.others.Count)
			reporters++
		}
		p.standings = append(p.standings, s)
	}
	mean := means{usage: usage / float64(users), others: others / float64(max(reporters, 1))}
	for i, m := range p.members.All {
		if s := &p.standings[i]; math.IsNaN(s.Usage) {
			s.account = p.account(m, s.Usage, mean.usage)
		}
	}
	return mean
}

// share returns which part of the capacity so many blocks are, as reported where the capacity is unknown.
func (s *standing) share(blocks int) float64 {
	if s.capacity == 0 {
		return s.Usage
	}
	return min(1, float64(blocks)/float64(s.capacity))
}

// survey is a query with what holds for all members.
type survey struct {
	*Query
	now     time.Time
	mean    means
	matches roster.Matches
}

// gather fills in the facts of c, whose answer is expected to have so many tokens a sequence.
func (p *Pool) gather(c *Candidate, q *survey, s *standing, output int) {
	m := c.member
	c.Slot = m.Slot
	c.Trust = m.Believed()
	c.LoadAge = s.Age
	c.Blind = q.Chunk == 0 && m.Blind()
	c.Matched = q.matches.Tokens(&m.Member)
	c.Expected = c.Matched
	c.Truncated = q.matches.Truncated(&m.Member)
	others := float64(m.ledger.others.Count)
	if s.Running < 0 {
		others, c.Unknown = q.mean.others, true
	}
	speed := p.pricing(m, q.Query, q.now)
	c.speed, c.answer = speed.Speed, float64(output)
	p.gatherRoom(c, q, s)
	p.gatherDecode(c, q, s, others)
	p.gatherLocal(c, q, &speed, others)
}

// gatherRoom fills in how full c's replica is.
func (p *Pool) gatherRoom(c *Candidate, q *survey, s *standing) {
	m, a := c.member, &s.account
	c.Reserved, c.Free = a.reserved, -1
	c.Usage = s.Usage
	if math.IsNaN(c.Usage) {
		c.Usage, c.Unknown = q.mean.usage, true
	}
	c.Local.Reserved = c.Usage
	c.used = float64((m.ledger.held + m.remote.Held) * m.blockSize())
	if a.capacity == 0 {
		return
	}
	c.Free = max(a.free, 0)
	c.Usage, c.Local.Reserved = s.share(a.used), s.share(a.used+a.reserved)
	c.used = float64(a.used * m.blockSize())
	c.Room = max(0, p.roomIn(m, a, a.asked(c.Need)-a.left())-q.Ready).Seconds()
}

// gatherDecode fills in who decodes there and what comes, with so many requests of others.
func (p *Pool) gatherDecode(c *Candidate, q *survey, s *standing, others float64) {
	m := c.member
	g := &c.member.ledger
	e := &c.member.remote
	output := int(c.answer)
	c.Running = float64(g.sequences+g.queued+e.Sequences+e.Queued) + others
	c.Waiting = float64(max(0, s.Waiting) + g.queued)
	c.Marginal = c.speed.Marginal(q.Tokens + output/2)
	c.Output = c.answer * float64(max(q.Sequences, 1))
	c.Step = c.speed.Step(g.sequences+e.Sequences+int(others)+1, int(c.used))
	c.Arriving = m.pace.Rate(q.now)
	c.Inbound = (g.moving + e.Moving).Seconds()
}

// gatherLocal fills in what it is to prefill there, too. Those whose prompt is not there are not decoding.
func (p *Pool) gatherLocal(c *Candidate, q *survey, speed *scoring.Pricing, others float64) {
	m := c.member
	g := &c.member.ledger
	e := &c.member.remote
	l := &c.Local
	l.Wait = m.localWait(q.now).Seconds()
	c.Doubtful = l.Wait == 0 && !q.Seeded && !p.settings.Speed.KnowsPrefill() && m.doubtful(q.now)
	l.Cold = speed.Prefill(q.Tokens, 0)
	c.priceMatch(q.Query, speed, p.Unit())
	l.Delayed = g.inbound.delayed(l.Wait, l.Warm, q.now) + float64(e.Arriving)*l.Warm
	l.Active = float64(g.sequences-g.arriving+e.Sequences-e.Arriving) + others
	l.Arrivals = m.comes.Rate(q.now)
	l.Rho = m.meter.Rho(q.now) + e.Rho
}

// priceMatch fills in what the prompt costs behind the tokens that are expected to be there. Local.Cold is
// known already.
func (c *Candidate) priceMatch(q *Query, speed *scoring.Pricing, blockSize int) {
	c.Missing = max(0, c.blocks*c.member.blockSize()-c.Expected)
	if c.Expected == 0 {
		c.Local.Warm = c.Local.Cold
		return
	}
	c.Local.Blocks = float64(c.Expected / blockSize)
	c.Local.Warm = min(c.Local.Cold, speed.Prefill(q.Tokens-c.Expected, c.Expected))
	c.Local.Share = float64(c.Expected) / float64(q.Tokens)
}

// roomIn returns how long it should take until so many blocks have come free: requests there end after an
// answer's usual time, evenly spread.
func (p *Pool) roomIn(m *member, a *account, blocks int) time.Duration {
	if blocks <= 0 {
		return 0
	}
	used := max(a.used, blocks, 1)
	return seconds(min(p.life(m, a)*float64(blocks)/float64(used), maxRoomWait.Seconds()))
}

// released returns the blocks that should have come free after so long, by the same reckoning.
func (p *Pool) released(m *member, a *account, within time.Duration) int {
	if within <= 0 || a.used <= 0 {
		return 0
	}
	return int(float64(a.used) * min(1, within.Seconds()/p.life(m, a)))
}

// life is the usual seconds of an answer on m.
func (p *Pool) life(m *member, a *account) float64 {
	return float64(p.usual) * p.speed(m).Step(m.batch(), a.used*m.blockSize())
}

const (
	maxRoomWait = time.Minute
	minRetry    = 10 * time.Millisecond
	maxRetry    = 10 * time.Second
)

func clampRetry(d time.Duration) time.Duration { return min(max(d, minRetry), maxRetry) }
