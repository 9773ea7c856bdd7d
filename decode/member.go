package decode

import (
	"math"
	"slices"
	"time"

	"github.com/tandem-router/tandem/decode/ledger"
	"github.com/tandem-router/tandem/decode/turns"
	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/roster"
)

// member is one decode replica. Guarded by the lock of the pool.
type member struct {
	roster.Member
	// The fields that every plan reads of every member stand together.
	load    replica.Fused
	drafted int            // tokens a sequence and step, by the newest report that counts them; 0 unknown
	account ledger.Account // of our leases
	atOnce  atOnce         // of the growth of leases
	goals   goals          // of leases
	remote  PeerLoad       // the sum of the other routers' reports
	learned estimate.Replica
	ofModel

	local  localPrompts
	beside turns.Streams // the replica's streams
	asked  replica.Load  // newest report that this router asked for
}

// atOnce is the share of the expected growth of all answers on one replica that is in use at one time: some
// answers end before others are long. 0 is unknown, and means all.
type atOnce struct {
	share float64
	at    time.Time // when it was worked out
}

// of returns the share of so many blocks.
func (s *atOnce) of(blocks int) int {
	if s.share == 0 {
		return blocks
	}
	return int(math.Ceil(s.share * float64(blocks)))
}

// goals are the different goals that leases of one replica have for their tokens. A goal without a sequence
// is not in the list.
type goals []goal

// goal is a time from token to token that so many sequences are to keep.
type goal struct {
	tpot      time.Duration
	sequences int
}

// count adds sequences with a goal, or takes them out. It ignores sequences without a goal.
func (g *goals) count(tpot time.Duration, more int) {
	if tpot == 0 {
		return
	}
	at := slices.IndexFunc(*g, func(x goal) bool { return x.tpot == tpot })
	if at < 0 {
		at = len(*g)
		*g = append(*g, goal{tpot: tpot})
	}
	if (*g)[at].sequences += more; (*g)[at].sequences == 0 {
		*g = slices.Delete(*g, at, at+1)
	}
}

func newMember() *member {
	m := new(member)
	m.local = localPrompts{turns.New(), &m.remote}
	return m
}

// cache returns the size of m's KV cache.
func (m *member) cache() cache { return cache{&m.R.Facts, m.drafted} }

// known returns the requests that m's engine has from this router and from known routers.
func (m *member) known() int { return m.account.Sent + m.remote.Sent + m.local.turns.Asked() }

// decodes returns what m decodes now.
func (m *member) decodes() estimate.Load {
	sequences := float64(m.account.Answering + m.remote.Decoding() + m.Others.Count)
	return estimate.Load{Sequences: sequences, Tokens: m.reads(sequences)}
}

// reads returns how many tokens a step of so many sequences reads. Sequences of unknown clients, and
// sequences whose prompts are not computed yet, count as long as the running ones.
func (m *member) reads(sequences float64) float64 {
	g, e := &m.account, &m.remote
	if known := g.Answering + e.Known; known > 0 {
		return float64(g.Context+e.Context) / float64(known) * sequences
	}
	return float64(m.account.InUse(m.R.Facts.Blocks) * m.cache().blockSize())
}

// besidePrompt returns two durations on m. longer is how many seconds decoding adds to a step with a prompt
// in it. wait is how long a new request waits for the running step: half of a step on average.
func (m *member) besidePrompt(speed *estimate.Speed) (longer, wait float64) {
	load := m.decodes()
	if load.Sequences <= 0 {
		return 0, 0
	}
	step := speed.Step(int(load.Sequences), int(load.Tokens))
	return max(0, step-speed.D0), step / 2
}

// batch returns how many sequences m has, sent or on their way: of this router, of other routers by their
// reports, and of unknown clients by the engine's count.
func (m *member) batch() int {
	return m.account.Sequences + m.remote.Sequences + m.Others.Count
}

// step returns the seconds of a decode step with all sequences of m, sent or on their way.
func (m *member) step(speed *estimate.Speed) float64 {
	return speed.Step(m.batch(), int(m.reads(float64(m.batch()))))
}

// decoding returns the number of sequences of m, sent or on their way, without the sequences whose prompts m
// still has to compute.
func (m *member) decoding() int {
	g, e := &m.account, &m.remote
	return g.Answering + g.Arriving + e.Decoding() + e.Arriving + m.Others.Count
}

// mostDecoded returns the largest load that m's steps can have had, with this load on average.
func (m *member) mostDecoded(was estimate.Load) estimate.Load {
	most := max(float64(m.batch()), was.Sequences, 1)
	kv := int(max(m.reads(most), was.Tokens))
	return estimate.Load{Sequences: float64(int(most)), Tokens: float64(kv)}
}

// longer returns how many times as long as the pool's steps the steps of m take by s. It compares them at the
// load at which the steps of m were measured lately. A fit of one replica that has seen one load only can
// predict anything for another load. At the present load, an idle replica would seem slow or fast by what its
// fit says of an empty step.
func (m *member) longer(s, pool *estimate.Speed) float64 {
	if !m.learned.Steps.Known() { // s is the pool's
		return 1
	}
	at := m.learned.UsualLoad()
	if at.Sequences == 0 { // what was learned is from before a restart
		at = m.decodes()
	}
	batch, kv := int(at.Sequences), int(at.Tokens)
	return s.Step(batch, kv) / pool.Step(batch, kv)
}

// PeerLoad is one router's report to others of its own bookings on a replica.
type PeerLoad = ledger.PeerLoad

const (
	// Of other routers' local prefills only the share of time is known, and that late.
	peersPrefill = 0.02

	usedUp = 0.95 // share of blocks in use; above it an engine preempts running requests
)

// disturbed reports whether work other than decode steps may have taken m's time since then: prompts for any
// router, or prompts computed again after m ran out of blocks. usage is the share of its blocks in use, NaN
// unknown.
func (m *member) disturbed(usage float64, since time.Time) bool {
	return !m.local.empty() || !m.local.turns.LeftAt().Before(since) || m.Others.Count > 0 ||
		m.remote.Rho > peersPrefill || !(usage <= usedUp)
}

// largestWaiting returns the share of m's KV cache that the largest waiting request of the report l may
// take: a request without a first token, or a preempted request. It is 0 if no request waits, if all waiting
// requests come from other clients, and if the capacity is unknown.
func (m *member) largestWaiting(l *replica.Load) float64 {
	if l.Waiting <= 0 || m.R.Facts.Blocks == 0 {
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
