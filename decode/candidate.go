package decode

import (
	"fmt"
	"slices"
	"time"

	"tandem/internal/kv"
	"tandem/internal/replica"
	"tandem/scoring"
)

// Query is the question of one request.
type Query struct {
	Model     string
	Tokens    int  // of the prompt, at least 1
	Estimate  bool // Tokens is one: nobody is too small for it
	MaxTokens int  // new tokens of each sequence, 0 no limit
	Class     Class
	Sequences int // below 1 counts as 1
	Keys      []kv.Key
	// Tokens of a chunk of text by estimate, where Keys are of chunks; 0 where they are of blocks.
	Chunk  float64
	Depth  []int32 // what [roster.Roster.Match] said of Keys
	Avoid  []replica.ID
	Ready  time.Duration // until a prefill replica can have computed it
	Pieces bool          // the prompt may be sent in pieces to who computes it itself
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
	answer := answer{lengths: p.expects(q, false)}
	first := len(dst)
	serves := p.members.Serving(q.Model)
	dst = slices.Grow(dst, len(p.members.All))
	for i, m := range p.members.All {
		verdict := m.unfit(q, serves[i])
		var e Excluded
		var need, free int
		if verdict == fit {
			dst = dst[:len(dst)+1]
			c := &dst[len(dst)-1]
			*c = Candidate{member: m}
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
			e.ID, e.Reason = m.R.ID, m.explain(verdict, e.Limit, q)
			if verdict == fit {
				e.Reason = fmt.Sprintf("has room for %d blocks, not %d", free, need)
			}
			*excluded = append(*excluded, e)
		}
	}
	p.expect(dst[first:], q, now)
	p.priceInPieces(dst[first:], q, now)
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
