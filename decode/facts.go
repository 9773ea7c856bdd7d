package decode

import (
	"math"

	"github.com/tandem-router/tandem/decode/ledger"
	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/roster"
	"github.com/tandem-router/tandem/scoring"
)

// noneRunsSoon reports whether every candidate runs its maximum of sequences for longer than a request
// should wait inside an engine. Then the request waits in the router, where any replica can take it. A
// single full replica is only more expensive: a request with its prefix cached there would be computed anew
// elsewhere, beside the streams of others.
func (q *survey) noneRunsSoon(cs []Candidate) bool {
	for i := range cs {
		if cs[i].runSlot <= q.Ready+ledger.ShortWait {
			return false
		}
	}
	return true
}

// offer makes c the candidate m, and reports whether m has room for the request.
func (q *survey) offer(c *Candidate, m *member, s *standing) bool {
	*c = Candidate{member: m}
	c.prompt, c.Need, c.limit = q.need(m)
	if s.Capacity > 0 && s.Left() < c.Need {
		inUse := q.inUse(m)
		c.prompt -= inUse
		c.Need -= inUse
	}
	c.runSlot = q.rooms.slotIn(m, &s.Headroom, q.Sequences)
	if !q.rooms.admits(m, &s.Headroom, c.Need, q.Ready, q.at) {
		return false
	}
	c.Crowded = !s.Fits(c.Need)
	q.gather(c, s, q.answer.rest)
	c.Saturated = q.Split && q.Local && q.rooms.saturated(c, &s.Headroom, q.Ready)
	return !c.Saturated || !c.Crowded
}

// gather fills in the facts of c. output is the expected number of tokens of each sequence.
func (q *survey) gather(c *Candidate, s *standing, output int) {
	m := c.member
	c.Slot = m.Slot
	c.Trust = m.Believed()
	c.LoadAge = s.Age
	c.Blind = q.Chunk == 0 && m.Blind()
	c.Matched = q.matches.Tokens(&m.Member)
	c.Below = q.matches.Below(&m.Member, q.Query.Below)
	if more := q.Stored - c.Matched; more > 0 {
		c.Matched += more
		c.Below.Shared += int32(more)
	}
	c.Expected = c.Matched
	c.Truncated = q.matches.Truncated(&m.Member)
	others := float64(m.Others.Count)
	if s.Running < 0 {
		others, c.Unknown = q.mean.others, true
	}
	speed := q.learned.pricing(m, q.now)
	c.speed, c.answer = speed.Speed, float64(output)
	q.gatherRoom(c, s)
	q.gatherDecode(c, s, others)
	q.gatherLocal(c, &speed, others)
	q.gatherGoals(c)
}

// gatherRoom fills in how full the replica of c is.
func (q *survey) gatherRoom(c *Candidate, s *standing) {
	m, a := c.member, &s.Headroom
	c.Reserved, c.Free = a.Reserved, -1
	c.Usage = s.Usage
	if math.IsNaN(c.Usage) {
		c.Usage, c.Unknown = q.mean.usage, true
	}
	c.Room = max(0, c.runSlot-q.Ready).Seconds()
	if a.Capacity == 0 {
		return
	}
	c.Free = max(a.Free, 0)
	c.Usage = s.share(a.Used)
	c.Room = max(0, max(c.runSlot, q.rooms.in(m, a, a.Asked(c.Need)-a.Left()))-q.Ready).Seconds()
}

// gatherDecode fills in the running and arriving requests. others is the number of requests of unknown
// clients.
func (q *survey) gatherDecode(c *Candidate, s *standing, others float64) {
	m := c.member
	g, e := &m.account, &m.remote
	output := int(c.answer)
	c.Running = float64(g.Sequences+g.Queued+e.Sequences+e.Queued) + others
	c.Waiting = float64(max(0, s.Waiting) + g.Queued)
	c.reads = m.reads(c.Running)
	c.longer = m.longer(&c.speed, &q.pool)
	c.Marginal = q.slope.Marginal(q.Tokens+output/2) * c.longer
	c.Usual = q.learned.lengths.Mean()
	c.Output = c.answer * float64(max(q.Sequences, 1))
	c.Step = c.speed.Step(g.Sequences+e.Sequences+int(others)+1, int(c.reads))
	c.Arriving = m.learned.Traffic.Inbound.Rate(q.now) + e.InboundRate
	c.Posting = m.learned.Posting()
	c.Inbound = g.Coming().Backlog(e, q.Ready, q.readyAt)
}

// gatherLocal fills in the facts of a local prefill. Requests whose prompt is not computed do not decode
// yet.
func (q *survey) gatherLocal(c *Candidate, speed *estimate.Pricing, others float64) {
	m, cutter := c.member, q.cutter
	g, e := &m.account, &m.remote
	l := &c.Local
	l.Wait = m.local.wait(q.now).Seconds()
	l.Busy = m.local.blocksFor(q.now, cutter.settings.Piece.Seconds()).Seconds()
	c.Doubtful = l.Wait == 0 && m.local.doubtful(q.now)
	l.Wait += e.Rho * q.age
	l.Read = q.learned.of(m).Reading(&m.learned.Prompts, c.Below.Tiers(), q.now)
	q.priceMatch(c, speed)
	if !cutter.cuts(q.Query, m) { // else see [survey.pricePieces]
		l.Delayed = g.Coming().Delayed(l.Wait, l.Warm, q.at) + float64(e.Arriving)*l.Warm
	}
	l.Active = float64(g.Sequences - g.Arriving + e.Sequences - e.Arriving)
	// The price of a prompt on a prefill replica leaves out requests of unknown routers. So the price of a
	// local prefill leaves out their streams, too.
	if _, unknown := m.Others.Unseen(); !unknown {
		l.Active += others
	}
	l.Arrivals = m.learned.Traffic.Requests.Rate(q.now) + e.Arrivals
	if l.Wait > 0 { // else nobody asks, see [scoring.Queue.Crowding]
		l.Rho = m.learned.Traffic.Prefills.Rho(q.now) + e.Rho
	}
}

// pricePieces prices the candidates that would get the prompt of q in pieces.
func (q *survey) pricePieces(cs []Candidate) {
	for i := range cs {
		one := &cs[i]
		l, m := &one.Local, one.member
		if !q.cutter.cuts(q.Query, m) {
			continue
		}
		cut := q.cutter.cut(m, &one.speed, l.Warm, q.Tokens-one.there(), q.now)
		if one.Source.Replica != nil {
			cut.pull(m.besidePrompt(&one.speed))
		}
		if l.Between, one.shared = cut.between, cut.shared; cut.pieces > 1 {
			l.Piece = l.Warm / float64(cut.pieces)
		}
		var longer int
		l.Wait, longer = m.local.before(q.cutter.turnOf(q.now, seconds(l.Took())), l.Took(), q.now)
		l.Wait += m.remote.Rho * q.age // as other routers usually book
		// A request whose KV blocks arrive meanwhile needs a place in a step, and waits for half of a piece.
		arriving := m.account.Coming().Needs(l.Wait, l.Wait+l.Took(), q.at)
		l.Delayed = float64(arriving)*l.Longest()/2 + float64(m.remote.Arriving)*l.Longest()/2 +
			float64(longer)*l.Took()
	}
}

// gatherGoals fills in what c would do to the goals of its streams and of the request itself. Requests of
// other routers and of unknown clients have no known goals.
func (q *survey) gatherGoals(c *Candidate) {
	m := c.member
	if len(m.goals) == 0 && q.Asked == nil {
		return
	}
	pace := c.speed.Step(int(c.Running)+1, int(c.reads)+q.Tokens) * m.learned.PerToken()
	paused := pace + c.Local.Warm/max(c.Usual, 1)
	x := &c.Stakes
	*x = scoring.Stakes{Asked: q.Asked, Pace: pace, Rest: c.answer * pace}
	for _, g := range m.goals {
		share := float64(g.sequences) / max(c.Running, 1)
		x.Spared += share * (1 - scoring.Held(pace, g.tpot))
		x.SparedLocal += share * (1 - scoring.Held(paused, g.tpot))
	}
}

// priceMatch fills in the cost of the prompt behind the expected prefix match.
func (q *survey) priceMatch(c *Candidate, speed *estimate.Pricing) {
	size := c.member.cache().blockSize()
	c.Missing = max(0, blocksOf(q.Tokens, size)*size-c.Expected)
	c.Local.Warm = speed.Prefill(q.Tokens, 0)
	if c.Expected > 0 {
		c.Local.Blocks = float64(c.Expected / q.unit)
		c.Local.Warm = min(c.Local.Warm, speed.Prefill(q.Tokens-c.Expected, c.Expected))
	}
	q.pull(c, speed)
	longer, wait := c.member.besidePrompt(&speed.Speed)
	c.Local.Between = longer + wait
	c.shared = estimate.SharedPart(q.Tokens-c.there()) * (speed.Speed.T0 + longer + wait)
}

// pull lets the replica of c pull blocks of the prompt from another engine if that is faster than computing
// them. Something must show when the wait for the source ends: the first token of the request itself, or the
// answer of a piece.
func (q *survey) pull(c *Candidate, speed *estimate.Pricing) {
	c.Source, c.Local.Pull = roster.Source{}, 0
	if len(q.Pulls.Sources) == 0 || !q.Local || !q.PullsWhole && !q.cutter.cuts(q.Query, c.member) {
		return
	}
	m := c.member
	read := q.learned.of(m).Arriving(&m.learned.Prompts, q.now)
	best := q.Pulls.Best(m.R, c.Expected, q.Tokens, c.Local.Warm, read, func(from int) float64 {
		return speed.Prefill(q.Tokens-from, from)
	})
	if best.Replica != nil {
		c.Source = best.Source
		c.Local.Pull, c.Local.Warm = best.Took, best.Warm
	}
}

// there returns the tokens that the replica should have when it begins to compute the prompt.
func (c *Candidate) there() int { return max(c.Expected, c.Source.Tokens) }

// expect prices the blind candidates. Unknown is not empty: each is expected to hold the mean of the others,
// or its last known match if that is larger.
func (q *survey) expect(cs []Candidate) {
	mean := roster.MeanMatched(len(cs), func(i int) (int, bool) { return cs[i].Matched, !cs[i].Blind }, q.unit)
	for i := range cs {
		if c := &cs[i]; c.Blind && c.Matched < mean {
			c.Expected = mean
			speed := q.learned.pricing(c.member, q.now)
			q.priceMatch(c, &speed)
		}
	}
}

// fillFirst fills in the step that makes the first token after a transfer: the mean of the candidates'
// steps. The difference of fast and slow replicas is priced by another term, as far as it is known.
func fillFirst(cs []Candidate) {
	sum := 0.0
	for i := range cs {
		sum += cs[i].Decode.Step
	}
	for i := range cs {
		cs[i].Decode.First = sum / float64(len(cs))
	}
}
