package decode

import (
	"slices"
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/scoring"
)

// Query is the question of one request.
type Query struct {
	Model     string
	Tokens    int  // of the prompt, at least 1
	Estimate  bool // Tokens is one: nobody is too small for it
	MaxTokens int  // new tokens of each sequence, 0 no limit
	Class     estimate.Class
	Sequences int // below 1 counts as 1
	Keys      []kv.Key
	// Tokens of a chunk of text by estimate, where Keys are of chunks; 0 where they are of blocks.
	Chunk  float64
	Depth  []int32 // what [roster.Roster.Match] said of Keys
	Avoid  []replica.ID
	Ready  time.Duration // until a prefill replica can have computed it
	Split  bool          // a prefill replica may compute it
	Local  bool          // the decode replica may compute it
	Pieces bool          // the prompt may be sent in pieces to who computes it itself

	// Prefills is how long prefills take in the other pool, as measured; zero: not known.
	Prefills estimate.Speed
}

// Candidate is a replica that could decode the request now, with all that is known of it. It belongs to the
// query that made it.
//
// Long: a row of facts, all of them read for one plan, of which an operator sees most.
type Candidate struct {
	scoring.Decode

	Slot    int // in the View
	Matched int // leading tokens that the index says it holds, whole blocks and less than Tokens
	// Leading tokens that it is priced with: Matched, or what is expected of a replica that is Blind.
	Expected int
	Need     int           // blocks for its expected answer, and for what no request has in use of its prompt
	Free     int           // blocks that may be promised, -1 where the capacity is unknown
	Reserved int           // blocks asked for by requests still in a prefill queue
	LoadAge  time.Duration // of the newest report, -1 without any
	// There will be room when its blocks come, but there is none yet for who prefills here.
	Crowded bool
	// Requests that wait for their blocks take all the room that they may: no blocks of this one may follow, but
	// it may be computed there.
	Saturated bool
	// The speed of its own prefills was learned, but of nothing new, and none is under way that could tell.
	Doubtful bool
	Unknown  bool // no fresh report: what it uses is the pool's mean
	// Its events do not reach us now: Matched is a guess, and may as well be too small as too large.
	Blind bool
	Trust replica.Trust

	// Truncated says that blocks of it were dropped from the index for the byte budget: Matched may be too
	// small, never too large.
	Truncated bool

	member  *member
	blocks  int           // of the prompt
	inUse   int           // of these, those that others have in use already and that Need leaves out
	limit   int           // new tokens of a sequence, -1 none
	runSlot time.Duration // until one sequence more may run there
	speed   estimate.Speed
	longer  float64 // times as long as the pool's its steps take
	reads   float64 // tokens that a step with all that it has reads
	answer  float64 // tokens that one sequence is expected to generate
	shared  float64 // seconds of its own prefill that it does not add to what others there take
}

// Candidates appends to dst the replicas that could decode q now, and returns the view for their slots. If
// excluded is not nil, it gets all other replicas.
func (p *Pool) Candidates(
	q *Query, now time.Time, dst []Candidate, excluded *[]Excluded,
) ([]Candidate, *View, Rejected) {
	p.members.Lock()
	defer p.members.Unlock()
	p.learned.Other = q.Prefills
	p.ledger.AdmitDue(now)
	var rejected Rejected
	s := p.survey(q, now)
	first := len(dst)
	serves := p.members.Serving(q.Model)
	dst = slices.Grow(dst, len(p.members.All))
	for i, m := range p.members.All {
		verdict := m.unfit(q, serves[i])
		if verdict == fit {
			dst = dst[:len(dst)+1]
			if p.offer(&dst[len(dst)-1], m, &s, &p.standings[i]) {
				continue
			}
			dst, verdict = dst[:len(dst)-1], full
		}
		p.reject(m, verdict, &s, &p.standings[i].Account, &rejected, excluded)
	}
	if noneRunsSoon(dst[first:], q) {
		for i := range dst[first:] {
			c := &dst[first+i]
			p.reject(c.member, full, &s, &p.standings[c.Slot].Account, &rejected, excluded)
		}
		dst = dst[:first]
	}
	p.expect(dst[first:], q, now)
	p.priceInPieces(dst[first:], q, s.mean.peersAge, now)
	fillFirst(dst[first:])
	p.compare(dst[first:], now)
	return dst, p.members.View, rejected
}

// noneRunsSoon reports whether every candidate runs its maximum of sequences for longer than a request
// should wait inside an engine. Then the request waits in the router, where any replica can take it. A
// single full replica is only more expensive: a request with its prefix cached there would be computed anew
// elsewhere, beside the streams of others.
func noneRunsSoon(cs []Candidate, q *Query) bool {
	for i := range cs {
		if cs[i].runSlot <= q.Ready+ledger.ShortWait {
			return false
		}
	}
	return true
}

// offer makes c the candidate m, and reports whether m has room for the request.
func (p *Pool) offer(c *Candidate, m *member, q *survey, s *standing) bool {
	*c = Candidate{member: m}
	c.blocks, c.Need, c.limit = m.need(q.Query, &q.answer)
	if s.Capacity > 0 && s.Left() < c.Need {
		c.inUse = p.inUse(m, q)
		c.Need -= c.inUse
	}
	c.runSlot = p.runSlotIn(m, &s.Account, q.Sequences)
	if !p.admits(m, &s.Account, c.Need, q.Ready, q.at) {
		return false
	}
	c.Crowded = !s.Fits(c.Need)
	p.gather(c, q, s, q.answer.rest)
	c.Saturated = q.Split && q.Local && p.saturated(c, &s.Account, q.Ready)
	return !c.Saturated || !c.Crowded
}
