package prefill

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/roster"
	"github.com/tandem-router/tandem/scoring"
)

// Query is the question of one request.
type Query struct {
	Model    string
	Tokens   int        // of the prompt, at least 1
	Estimate bool       // Tokens is one: no prompt is too long by it
	Depth    []int32    // what [roster.Roster.Match] said
	Below    []kv.Below // what [roster.Roster.MatchTiers] said
	// Tokens of a chunk of text by estimate, where Depth counts chunks; 0 where it counts blocks.
	Chunk float64
	Block int // tokens of a block, where Depth counts blocks
	Avoid []replica.ID

	Pulls roster.Pulls // from other engines

	Prefills estimate.Speed // measured times of prefills in the other pool; zero: not known
}

// named returns the prompt without its keys.
func (q *Query) named() roster.Prompt {
	return roster.Prompt{Block: q.Block, Tokens: q.Tokens, Chunk: q.Chunk}
}

// Candidate is a replica that could prefill the request, with all facts that a plan reads. It belongs to the
// query that made it.
//
// Long: a row of facts for one plan. An operator sees most facts.
type Candidate struct {
	scoring.Prefill

	Slot    int      // in the View
	Tokens  int      // of the prompt
	Matched int      // leading tokens that it holds by the index: whole blocks, fewer than Tokens
	Below   kv.Below // of Matched, the tokens that it must read back from lower tiers
	// Leading tokens in its price: Matched, or the expected tokens if the replica is Blind.
	Expected int
	Source   roster.Source // from which it would pull blocks of the prompt; zero for none
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
	query  *Query
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
	serves := p.members.Serving(q.Model)
	p.learned.asked(p.members.All, serves).Other = q.Prefills
	s := survey{
		Query: q, learned: &p.learned, now: now, mean: p.read(now), unit: cmp.Or(q.Block, roster.UsualBlock),
		matches: p.Matches(q.Depth, q.named()),
	}
	p.taken = slices.Grow(p.taken[:0], len(q.Depth))[:len(q.Depth)]
	s.taken, s.returns = p.taken, p.Taken(p.taken)
	first := len(dst)
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
		*c = Candidate{member: m, query: q}
		s.gather(c, &p.readings[i])
		c.Evicts = s.evicts(c)
	}
	fillArrivals(dst[first:])
	s.expect(dst[first:])
	s.pull(dst[first:])
	return dst, p.members.View
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

// Rho returns the share of its time that c's replica is booked with work.
func (p *Pool) Rho(c *Candidate, now time.Time) float64 {
	p.members.Lock()
	defer p.members.Unlock()
	return c.member.rho(now)
}
