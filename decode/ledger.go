package decode

import (
	"container/heap"
	"math"
	"slices"
	"time"

	"tandem/internal/replica"
	"tandem/internal/roster"
	"tandem/scoring"
)

// ledger is what we promised of one replica's KV blocks. Guarded by Pool.Mu.
//
//	         Book                expected prefill start, or Harden         a report later than Harden
//	request ------> soft: in scores only ------> hard: promised ------> covered: the engine counts it, we count its growth
//
// Free blocks are the engine's own account (capacity less usage at its newest report) less what is promised since, less growth, plus what has been
// released since. All sums are integers, so that they are exactly zero again when no lease is left.
type ledger struct {
	leases    []*Lease
	soft      int       // blocks asked for by soft leases
	promised  int       // blocks of hard leases that the newest report cannot include
	growth    int       // blocks that requests included in the report will still take
	held      int       // blocks and growth of all hard leases: our own account, where the engine gives none
	usage     float64   // share of blocks in use by the report that is counted from
	at        time.Time // of that report
	returned  int       // blocks of leases that the report surely includes and that ended since
	gone      int       // sequences that the report should include and has no more: we have yet to hear of their end
	others    int       // requests there that are not ours: the smaller of the last two counts, see countOthers
	lastSeen  int       // the last of those
	heard     bool
	moving    time.Duration // for the blocks that are to come from prefill replicas, of leases of any kind
	arriving  int           // sequences of hard leases whose blocks have not come
	warming   warming       // prompts to be computed here
	coming    coming        // leases of others, whose blocks are to come
	queued    int           // sequences of soft leases
	sequences int           // sequences of hard leases
	bound     int           // sequences of leases that the engine has got
}

// countOthers takes in how many requests a report has beyond ours. A report and our own count never are of quite the same moment: what only one report
// says may be a request of ours that has just ended.
func (g *ledger) countOthers(seen int) {
	seen = max(0, seen)
	g.others = seen
	if g.heard {
		g.others = min(seen, g.lastSeen)
	}
	g.lastSeen, g.heard = seen, true
}

// Lease is room booked on a decode replica. Whoever holds it ends it with Release or [Lease.Finish].
type Lease struct {
	pool *Pool

	// Guarded by pool.Mu, as is all that follows.
	member    *member
	state     state
	slot      int // in member.ledger.leases
	queueSlot int // in pool.soft
	hardAt    time.Time

	lengths   *scoring.Lengths
	prompt    int           // tokens
	matched   int           // tokens believed to be there already
	named     roster.Prompt // immutable
	sequences int
	limit     int // new tokens of each sequence, -1 none
	blocks    int // of the prompt
	more      int // blocks of growth still expected
	batch     int // sequences there at booking, with this one

	bound     bool // the engine has got the request
	boundAt   time.Time
	clear     bool // when it got it, nobody waited there and there was room
	covered   bool // the newest usage report includes it
	generated int  // tokens of each sequence, as far as told
	toldAt    time.Time

	awaited bool            // its prompt is not there
	untold  time.Duration   // after twice which it is taken to be, where nobody tells; 0: the first token tells
	moving  time.Duration   // for its blocks, from a prefill replica
	outbox  *replica.Outbox // of that
	sentAt  time.Time       // when it should be sent here
	landAt  time.Time       // when its blocks should be here

	local     bool
	warm      time.Duration // predicted of a local prefill
	alone     bool          // no other local prefill was ahead
	firstSeen bool
	firstAt   time.Time // when it was
}

type state uint8

const (
	soft state = iota
	hard
	ended
)

func (l *Lease) whole() int { return l.blocks + l.more }

// add enters l as soft or hard.
func (p *Pool) add(l *Lease, now time.Time) {
	g := &l.member.ledger
	g.moving += l.moving
	if l.local {
		g.warming.add(l, now)
	} else {
		l.outbox.Add(l.moving)
		g.coming.add(l)
	}
	l.slot = len(g.leases)
	g.leases = append(g.leases, l)
	if l.hardAt.After(now) {
		l.state = soft
		g.soft += l.whole()
		g.queued += l.sequences
		heap.Push(&p.soft, l)
		return
	}
	l.enterHard()
}

func (l *Lease) enterHard() {
	g := &l.member.ledger
	l.state = hard
	g.promised += l.whole()
	g.held += l.whole()
	g.sequences += l.sequences
	if l.awaited && !l.local {
		g.arriving += l.sequences
	}
}

// landed notes that the prompt of l is there, or never will be.
func (l *Lease) landed(now time.Time) {
	if !l.awaited {
		return
	}
	g := &l.member.ledger
	l.awaited = false
	if l.local {
		g.warming.remove(l, now)
		return
	}
	if l.state == hard {
		g.arriving -= l.sequences
	}
	g.coming.remove(l)
	g.moving -= l.moving
	l.outbox.Add(-l.moving)
	l.moving = 0
}

// harden makes l hard if it is soft.
func (p *Pool) harden(l *Lease) {
	if l.state != soft {
		return
	}
	g := &l.member.ledger
	heap.Remove(&p.soft, l.queueSlot)
	g.soft -= l.whole()
	g.queued -= l.sequences
	l.enterHard()
}

// turnHard makes hard every soft lease whose prefill should have begun.
func (p *Pool) turnHard(now time.Time) {
	for len(p.soft) > 0 && !p.soft[0].hardAt.After(now) {
		p.harden(p.soft[0])
	}
}

// remove takes l out of all sums.
func (p *Pool) remove(l *Lease, now time.Time) {
	m := l.member
	g := &m.ledger
	l.landed(now)
	switch {
	case l.state == soft:
		heap.Remove(&p.soft, l.queueSlot)
		g.soft -= l.whole()
		g.queued -= l.sequences
	case l.covered:
		g.growth -= l.more
		g.held -= l.whole()
		g.sequences -= l.sequences
		switch {
		case g.gone > 0: // the report has it back already
			g.gone = max(0, g.gone-l.sequences)
		case !now.Before(g.at.Add(reportDelay)):
			g.returned += p.own(l, now)
		}
	default:
		g.promised -= l.whole()
		g.held -= l.whole()
		g.sequences -= l.sequences
	}
	if l.bound {
		g.bound -= l.sequences
	}
	last := g.leases[len(g.leases)-1]
	g.leases[l.slot], last.slot = last, l.slot
	g.leases[len(g.leases)-1] = nil
	g.leases = g.leases[:len(g.leases)-1]
	l.state = ended
}

// own returns the blocks that the engine surely has back when l ends: those that no other request shares. It may have found the first of them there, and
// others may have found those that it brought.
func (p *Pool) own(l *Lease, now time.Time) int {
	size, shared := l.member.blockSize(), l.matched
	for _, o := range l.member.ledger.leases {
		if o != l && o.covered {
			shared = p.Common(&l.named, &o.named, shared)
		}
	}
	return max(0, l.blocks-shared/size) + l.sequences*(blocksOf(l.has(l.soFar(p, now)), size)-l.blocks)
}

// reportDelay is how long after a request was sent a report may still not include it: it has to arrive, be scheduled, and the gauge to be set. As long
// before we see its end a report may include it no longer: an answer that is not streamed even brings such a report along.
const reportDelay = 200 * time.Millisecond

// there is how many sequences hold blocks by a report: those that run, and those whose blocks are on their way; who merely waits there holds none. A report
// that an answer brings along does not say, and an engine whose steps take long brings out answers with a usage from before it had heard of the newest requests
// (vLLM 0.32, measured). It is counted from only where all are known to be in it.
func (g *ledger) there(l replica.Load) (sequences int, known bool) {
	if l.Running >= 0 {
		return l.Running + max(l.Loading, 0), true
	}
	for _, lease := range g.leases {
		if lease.bound && !lease.covered && !lease.firstSeen {
			return 0, false
		}
	}
	return math.MaxInt, true
}

// settle makes the report of the given time the account to count from. there is how many sequences the engine had by it, [math.MaxInt] where it did not say.
func (p *Pool) settle(m *member, at time.Time, there int) {
	g := &m.ledger
	g.usage, g.at = m.load.Usage(at, p.settings.LoadTTL), at
	g.returned = 0
	if there < g.bound { // the report lacks some of ours: the newest, so that the order counts
		slices.SortFunc(g.leases, func(a, b *Lease) int { return a.boundAt.Compare(b.boundAt) })
		for i, l := range g.leases {
			l.slot = i
		}
	}
	for _, l := range g.leases {
		if l.covered {
			there -= l.sequences
		}
	}
	g.gone = max(0, -there)
	for _, l := range g.leases {
		if l.state != hard || !l.bound || l.boundAt.Add(reportDelay).After(at) {
			continue
		}
		if l.untold > 0 && l.boundAt.Add(2*l.untold).Before(at) {
			l.landed(at)
		}
		if !l.covered {
			if there < l.sequences {
				continue
			}
			there -= l.sequences
			if l.local && l.awaited { // an engine takes blocks as it computes, so that the report has some of them at most
				continue
			}
			l.covered = true
			g.promised -= l.whole()
			g.growth += l.more
		}
		more := l.grows(l.soFar(p, at))
		g.growth += more - l.more
		g.held += more - l.more
		l.more = more
	}
}

// reported returns the blocks in use by the newest report.
func (m *member) reported() int { return int(math.Round(m.ledger.usage * float64(m.R.Facts.Blocks))) }

// soFar returns the tokens that each sequence of l should have by now: as told, else at the speed of the replica.
func (l *Lease) soFar(p *Pool, now time.Time) int {
	since, have := l.boundAt, 0
	if !l.toldAt.IsZero() {
		since, have = l.toldAt, l.generated
	}
	if !l.bound || !now.After(since) {
		return have
	}
	m := l.member
	step := p.speed(m).Step(m.ledger.bound+m.elsewhere.Bound+m.ledger.others, m.reported()*m.blockSize())
	have += int(now.Sub(since).Seconds() / step)
	if l.limit >= 0 {
		have = min(have, l.limit)
	}
	return have
}

// grows returns the blocks that l is still expected to add when each sequence has generated so many tokens.
func (l *Lease) grows(generated int) int {
	left := -1
	if l.limit >= 0 {
		left = max(0, l.limit-generated)
	}
	rest := l.lengths.Rest(generated, left)
	size := l.member.blockSize()
	return l.sequences * (blocksOf(l.member.slots(l.prompt+generated+rest), size) - blocksOf(l.has(generated), size))
}

// has is how many tokens' room each sequence holds when it has generated so many. Before the first nothing is drafted.
func (l *Lease) has(generated int) int {
	if generated == 0 {
		return l.prompt
	}
	return l.member.slots(l.prompt + generated)
}

func blocksOf(tokens, size int) int { return (tokens + size - 1) / size }

// usualBlock is vLLM's default block size, for a member that has not said its own.
const usualBlock = 16

func (m *member) blockSize() int {
	if size := m.R.Facts.BlockSize; size > 0 {
		return size
	}
	return usualBlock
}

// account is a member's headroom at one moment, in blocks.
type account struct {
	capacity int // 0 unknown: then nothing else is known
	most     int // that may ever be promised
	used     int // in use or promised, growth included
	free     int // may be promised; below zero when overbooked
	soft     int
	guessed  bool // no fresh report: used is the pool's mean, or our own account if that is more
}

// account needs what other members use on average, NaN when nobody says.
func (p *Pool) account(m *member, now time.Time, meanUsage float64) account {
	g, e := &m.ledger, &m.elsewhere
	a := account{capacity: m.R.Facts.Blocks, soft: g.soft + e.Soft, guessed: math.IsNaN(m.load.Usage(now, p.settings.LoadTTL))}
	if a.capacity == 0 {
		return a
	}
	if a.guessed {
		a.used = g.held + e.Held
		if meanUsage > 0 {
			a.used = max(a.used, int(meanUsage*float64(a.capacity)))
		}
	} else {
		coming := g.promised + g.growth + e.Promised + e.Growth
		a.used = max(m.reported()+coming+p.othersGrow(m)-g.returned-e.Returned, coming, 0)
	}
	a.most = a.capacity - p.margin(m)
	a.free = a.most - a.used
	return a
}

func (p *Pool) margin(m *member) int {
	return int(math.Ceil(min(max(p.settings.Margin, 0), 1) * float64(m.R.Facts.Blocks)))
}

// othersGrow returns the blocks that requests which are not ours are expected to add: each is taken to be half through.
func (p *Pool) othersGrow(m *member) int {
	if m.ledger.others == 0 {
		return 0
	}
	return m.ledger.others * blocksOf(p.usual/2, m.blockSize())
}

// left is what could be promised if all who wait for their prefill had their blocks.
func (a *account) left() int { return a.free - a.soft }

// asked is the room that a request of so many blocks has to find: one that is larger than all that may be promised fits an empty replica.
func (a *account) asked(blocks int) int { return min(blocks, a.most) }

// fits reports whether a request of so many blocks may be booked hard.
func (a *account) fits(blocks int) bool { return a.capacity == 0 || a.free >= a.asked(blocks) }

// softQueue is a heap of soft leases by hardAt.
type softQueue []*Lease

func (q softQueue) Len() int           { return len(q) }
func (q softQueue) Less(i, j int) bool { return q[i].hardAt.Before(q[j].hardAt) }
func (q softQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].queueSlot, q[j].queueSlot = i, j
}

// Push is for container/heap.
func (q *softQueue) Push(x any) {
	l := x.(*Lease)
	l.queueSlot = len(*q)
	*q = append(*q, l)
}

// Pop is for container/heap.
func (q *softQueue) Pop() any {
	last := len(*q) - 1
	l := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return l
}
