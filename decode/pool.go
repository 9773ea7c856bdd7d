// Package decode owns the decode pool: its members, what is promised on them, and what leases teach. It
// offers candidates and grants leases.
//
// Its files are layers. A file uses files of its own line and of the lines below it only:
//
//	reports, status                           what engines, other routers and operators say and ask
//	late_binding                              is the replica of a lease still the best
//	stream, pieces, learn, booking            a lease from its booking to its end, and what it teaches
//	at_once                                   how much of the growth of leases is in use at one time
//	lease                                     one booked request, with what is known of its answer
//	pool                                      the members, the ledger, and the way to candidates
//	facts, slow, rejected, then survey        one query: makes, compares and rejects candidates
//	cutter, rooms, sequences, learned         pieces, room and waits of a member; lessons about all
//	candidate, member                         one choice of a query; what one replica has and does
//	cache, local, query, schedule, settings   values, and the prompts of one replica
//
// Only lease and the lines above it know leases.
package decode

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/roster"
)

// Options says how a Pool is made. The zero value works.
type Options = roster.Options

// Pool is the decode pool. Safe for concurrent use.
type Pool struct {
	*roster.Roster[*member]

	members *roster.Members[*member] // its lock guards all that follows

	settings Settings
	ledger   ledger.Ledger
	learned  lessons
	rooms    rooms
	cutter   cutter
	peers    roster.Peers[*member, PeerLoad, *PeerLoad]
}

// Guess is one router's report to others of a prompt that it has sent.
type Guess = roster.Guess

// View is the list of members at one moment.
type View = roster.View

// New returns a pool without members, which believes no report before it has been configured.
func New(o Options) *Pool {
	p := &Pool{ledger: ledger.New()}
	p.Roster, p.members = roster.New(o, newMember)
	p.peers = roster.NewPeers(p.members, func(m *member) *PeerLoad { return &m.remote })
	p.learned.lengths = estimate.NewLengths(1, 0, 0)
	p.rooms = rooms{
		settings: &p.settings, learned: &p.learned, sequences: sequences{&p.learned},
	}
	p.cutter = cutter{settings: &p.settings, ledger: &p.ledger, learned: &p.learned, rooms: &p.rooms}
	return p
}

// Configure makes s hold from now on. Another expected output starts the learning of lengths again. It panics
// where s is not said in full: the pool has no numbers of its own.
func (p *Pool) Configure(s Settings) {
	if s.LoadTTL <= 0 || s.ExpectedOutput < 1 {
		panic("decode: settings without LoadTTL or ExpectedOutput")
	}
	p.members.Lock()
	defer p.members.Unlock()
	if was := &p.settings; s.ExpectedOutput != was.ExpectedOutput || s.OutputDoubt != was.OutputDoubt ||
		s.Learning != was.Learning {
		p.learned.lengths = estimate.NewLengths(s.ExpectedOutput, s.OutputDoubt, s.Learning.Answers)
	}
	p.settings = s
	p.learned.Configure(s.Speed, s.Learning.Samples)
}

// Booked returns how many leases of id have not ended; 0 where it is no member. Safe for concurrent use.
func (p *Pool) Booked(id replica.ID) (leases int) {
	p.about(id, func(m *member) { leases = len(m.account.Leases()) })
	return leases
}

// about calls do with the member id under the lock of the pool. It does nothing if there is no such member.
func (p *Pool) about(id replica.ID, do func(m *member)) {
	p.members.Lock()
	defer p.members.Unlock()
	if m, ok := p.members.Find(id); ok {
		do(m)
	}
}

// Candidates appends to dst the replicas that could decode q now, and returns the view for their slots. If
// excluded is not nil, it gets all other replicas.
func (p *Pool) Candidates(
	q *Query, now time.Time, dst []Candidate, excluded *[]Excluded,
) ([]Candidate, *View, Rejected) {
	p.members.Lock()
	defer p.members.Unlock()
	p.ledger.AdmitDue(now)
	var rejected Rejected
	serves := p.members.Serving(q.Model)
	s := p.survey(q, serves, now)
	first := len(dst)
	dst = slices.Grow(dst, len(p.members.All))
	for i, m := range p.members.All {
		verdict := m.unfit(q, serves[i])
		if verdict == fit {
			dst = dst[:len(dst)+1]
			if s.offer(&dst[len(dst)-1], m, &p.rooms.standings[i]) {
				continue
			}
			dst, verdict = dst[:len(dst)-1], noRoom
		}
		s.reject(m, verdict, &p.rooms.standings[i].Headroom, &rejected, excluded)
	}
	if s.noneRunsSoon(dst[first:]) {
		for i := range dst[first:] {
			c := &dst[first+i]
			s.reject(c.member, noRoom, &p.rooms.standings[c.Slot].Headroom, &rejected, excluded)
		}
		dst = dst[:first]
	}
	s.expect(dst[first:])
	s.pricePieces(dst[first:])
	fillFirst(dst[first:])
	s.compare(dst[first:])
	return dst, p.members.View, rejected
}

// survey computes what holds for all members. The cost of more load in a step is fitted over the pool and
// scaled by the slowness of each replica. A fit of one replica sees about one load only. It could predict
// that more load costs next to nothing, and would attract more.
func (p *Pool) survey(q *Query, serves []bool, now time.Time) survey {
	lesson := p.learned.asked(p.members.All, serves)
	lesson.Other = q.Prefills
	s := survey{
		Query: q, learned: &p.learned, lesson: lesson, rooms: &p.rooms, cutter: &p.cutter,
		now: now, at: p.ledger.At(now), readyAt: p.ledger.At(now.Add(q.Ready)),
		mean: p.rooms.read(p.members.All, now), matches: p.Matches(q.Depth, q.named()),
		answer: length{lengths: p.learned.expects(q, false)}, pool: lesson.StepSpeed(),
		unit: cmp.Or(q.Block, roster.UsualBlock), age: p.peers.Age(now).Seconds(),
	}
	s.slope = p.learned.costOfLoad(lesson, &s.pool, p.members.All, now)
	return s
}

// Bookable returns the most tokens that an estimate may book for a prompt of model: within the largest
// context and half of the largest replica. A larger estimate could be wrong by any factor. It would wait
// until a replica is nearly empty, and hold up every request behind it.
func (p *Pool) Bookable(model string) int {
	p.members.Lock()
	defer p.members.Unlock()
	most := 0
	serves := p.members.Serving(model)
	for i, m := range p.members.All {
		if serves[i] {
			most = max(most, min(m.cache().largest(), m.cache().capacity()/2))
		}
	}
	return cmp.Or(most, math.MaxInt)
}
