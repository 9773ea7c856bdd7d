// Package policies holds the routers that replay compares: Tandem's own decision, unchanged, and the policies
// of the field with their authors' formulas.
package policies

import (
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/waitline"
	"github.com/tandem-router/tandem/orchestrator/planner"
	"github.com/tandem-router/tandem/orchestrator/policy"
	"github.com/tandem-router/tandem/prefill"
)

// Tandem is the decision that production runs: the pools, the planner, the ledgers and the index, called as
// the orchestrator calls them.
type Tandem struct {
	prefill  *prefill.Pool
	decode   *decode.Pool
	planner  *planner.Planner
	policy   planner.Policy
	asks     planner.Request // the part that is the same in all requests
	members  members
	goals    bool   // of classes are known
	tuned    *Tuned // nil for production's settings
	sequence sequence
	sharing  sharing
	underWay underWay
	Stats    Stats
}

// members is the replicas of a fleet, by side and number.
type members struct {
	all  [2][]replica.Replica
	ids  [2][]replica.ID
	at   [2]map[replica.ID]int // their numbers
	gone [2][]bool
}

func membersOf(c *cluster.Config) (m members) {
	for side := range m.all {
		m.all[side] = c.Replicas(cluster.Side(side))
		m.gone[side] = make([]bool, len(m.all[side]))
		m.at[side] = map[replica.ID]int{}
		for i, r := range m.all[side] {
			m.ids[side] = append(m.ids[side], r.ID)
			m.at[side][r.ID] = i
		}
	}
	return m
}

// underWay is the requests that have not ended.
type underWay struct {
	booked   []booked // by slot
	live     int      // requests that are placed
	retrying int      // requests that hold a place in the retry budget
}

// Stats count what a router did.
type Stats struct {
	Split, Local, Moved int
	NoRoom              int // tries
	Retried, Ejected    int
}

// Sum adds up what Tandem's routers did; nil if there is none among them.
func Sum(routers []cluster.Router) *Stats {
	var all *Stats
	for _, r := range routers {
		if t, ok := r.(*Tandem); ok {
			if all == nil {
				all = &Stats{}
			}
			all.Split += t.Stats.Split
			all.Local += t.Stats.Local
			all.Moved += t.Stats.Moved
			all.NoRoom += t.Stats.NoRoom
			all.Retried += t.Stats.Retried
			all.Ejected += t.Stats.Ejected
		}
	}
	return all
}

// booked is a request under way.
type booked struct {
	query *cluster.Query // the request as the cluster has it
	req   planner.Request
	book  *planner.Booking
	full  planner.NoRoom // what the planner said when there was no room
	retry attempts
}

var _ cluster.Router = (*Tandem)(nil)

// NewTandem makes the router of a fleet.
func NewTandem(c cluster.Config, o Options, seed uint64) *Tandem {
	var every float64
	guesses := true
	p, split := policyOf(&c, &o), !o.NoSplit && len(c.Nodes[cluster.Prefill]) > 0
	if o.Tuned != nil {
		every, guesses = o.Tuned.Share, o.Tuned.Guesses > 0
	}
	if every == 0 {
		every = c.Misstated.Every.Seconds()
	}
	t := &Tandem{
		prefill: prefill.New(prefill.Options{}), decode: decode.New(decode.Options{}),
		policy: p, asks: planner.Request{
			Model: "m", Exact: true, Sequences: 1,
			Pieces: true, Pulls: true, PullsWhole: true, SplitOK: split, LocalOK: !o.NoLocal || !split,
		}, members: membersOf(&c),
		goals:    !o.NoGoals,
		tuned:    o.Tuned,
		sequence: sequence{order: o.Order, rnd: rand.New(rand.NewPCG(seed, 0x73657175))},
		sharing:  sharing{every: time.Duration(every * float64(time.Second)), guesses: guesses},
	}
	if c.Misstated.Text > 0 {
		t.asks.Exact, t.asks.Pieces = false, false
	}
	t.planner = planner.New(t.prefill, t.decode, p, rand.New(rand.NewPCG(seed, 0x74616e64)))
	indexing := indexingOf(&c.Misstated)
	t.prefill.SetIndexing(indexing)
	t.decode.SetIndexing(indexing)
	now := cluster.Time(0)
	t.prefill.SetMembers(t.members.all[cluster.Prefill], now)
	t.decode.SetMembers(t.members.all[cluster.Decode], now)
	t.asks.PrefillBlock, t.asks.DecodeBlock = t.prefill.BlockSize(), t.decode.BlockSize()
	for _, id := range t.members.ids[cluster.Prefill] {
		t.prefill.SetTrust(id, replica.Live)
	}
	for _, id := range t.members.ids[cluster.Decode] {
		t.decode.SetTrust(id, replica.Live)
	}
	return t
}

// Pools returns the pools as the router has them.
func (t *Tandem) Pools() (*prefill.Pool, *decode.Pool) { return t.prefill, t.decode }

// policyOf returns production's policy for a fleet, with replay's settings. Trials of the router's own are
// left out: the next request is the trial, which costs clients more.
func policyOf(c *cluster.Config, o *Options) planner.Policy {
	p := policy.Default()
	p.Rule = o.Rule
	if o.Tuned != nil {
		o.Tuned.apply(&p)
	}
	p.KVBytesPerToken, p.Links = float64(c.TokenBytes), c.ToldLinks()
	if c.Misstated.Speed > 0 {
		p.Prefill = saidOf(c, cluster.Prefill)
		p.Decode = saidOf(c, cluster.Decode)
	}
	p.Ejection.Trials = false
	return p
}

// Events says that both indexes follow events.
func (t *Tandem) Events() [2]bool { return [2]bool{true, true} }

// Place plans and books.
func (t *Tandem) Place(q *cluster.Query, now time.Time) (p, d int, room bool) {
	b := t.requestOf(q)
	r := &b.retry
	b.req = t.asks
	b.req.Tokens = q.Tokens
	b.req.PrefillKeys, b.req.DecodeKeys = q.Keys, q.Keys
	b.req.Chunk = q.Chunk
	b.req.Class, b.req.Waited = classOf(q), now.Sub(q.At)
	b.req.Goals, b.req.FirstBy = t.goalsOf(q), t.FirstBy(q)
	b.req.SplitOK = b.req.SplitOK && !r.alone
	b.req.AvoidPrefill, b.req.AvoidDecode = r.avoid[cluster.Prefill], r.avoid[cluster.Decode]
	if r.tries == 0 {
		t.first(b, q, now)
	}
	book, err := t.search(b, now)
	// Later on every replica that has not failed the request may stand in, as in production.
	b.req.AvoidPrefill, b.req.AvoidDecode = r.avoid[cluster.Prefill], r.avoid[cluster.Decode]
	if err != nil {
		t.Stats.NoRoom++
		b.full = planner.NoRoom{}
		if full, ok := errors.AsType[*planner.NoRoom](err); ok {
			b.full = *full
		}
		if late := (*planner.TooLate)(nil); errors.As(err, &late) || final(b, err) {
			t.lost(b, now)
			return 0, cluster.Refuse, false
		}
		return 0, 0, false
	}
	b.book = book
	r.tries++
	t.underWay.live++
	d = t.members.at[cluster.Decode][book.Decode.ID]
	if book.Mode == planner.Local {
		t.Stats.Local++
		return -1, d, true
	}
	t.Stats.Split++
	return t.members.at[cluster.Prefill][book.Prefill.ID], d, true
}

// Pull returns what the first leg of a placed request pulls from another engine.
func (t *Tandem) Pull(q *cluster.Query) (side cluster.Side, i, tokens int) {
	pull := t.underWay.booked[q.Slot].book.Pull()
	if at, of := t.members.at[cluster.Prefill][pull.From]; of {
		return cluster.Prefill, at, pull.Tokens
	}
	return cluster.Decode, t.members.at[cluster.Decode][pull.From], pull.Tokens
}

// requestOf returns the request in a slot, made anew where that was another one's.
func (t *Tandem) requestOf(q *cluster.Query) *booked {
	for len(t.underWay.booked) <= q.Slot {
		t.underWay.booked = append(t.underWay.booked, booked{})
	}
	b := &t.underWay.booked[q.Slot]
	if b.query != q { // the one before may have given up while it waited
		t.forget(b)
		b.query = q
	}
	return b
}

// Answered ends the prefill lease.
func (t *Tandem) Answered(q *cluster.Query, cached int, took time.Duration, now time.Time) {
	book := t.underWay.booked[q.Slot].book
	book.Counted(q.Counted)
	book.PrefillLease.Done(cached, took, now)
	book.Prefilled(now)
}

// Bind looks at the decode choice again.
func (t *Tandem) Bind(q *cluster.Query, now time.Time) int {
	b := &t.underWay.booked[q.Slot]
	moved, err := t.planner.Rebind(b.book, &b.req, now)
	if moved && err == nil {
		t.Stats.Moved++
	}
	return t.members.at[cluster.Decode][b.book.Decode.ID]
}

var (
	_ cluster.Piecer     = (*Tandem)(nil)
	_ cluster.Puller     = (*Tandem)(nil)
	_ cluster.Forecaster = (*Tandem)(nil)
)

// Order says how urgent a request is; the tightest goal is first. Without the goals of classes, Order knows
// no tenants either.
func (t *Tandem) Order(q *cluster.Query, tenant uint32) waitline.Order {
	if !t.goals {
		return waitline.Order{}
	}
	o := waitline.Order{Tenant: tenant}
	if goals := t.goalsOf(q); goals.TTFT > 0 {
		o.Rank = int(goals.TTFT.Milliseconds())
		o.Due = q.At.Add(goals.TTFT).Sub(cluster.Time(0))
	}
	return o
}

// Behind bounds the work ahead of the request that is placed next.
func (t *Tandem) Behind(_ *cluster.Query, most time.Duration) { t.asks.MostAhead = most }

// Cost is what a placed request takes.
func (t *Tandem) Cost(q *cluster.Query) float64 { return t.underWay.booked[q.Slot].book.Cost() }

// RoomIn says what a request found that has found no room.
func (t *Tandem) RoomIn(q *cluster.Query) waitline.Found {
	return t.underWay.booked[q.Slot].full.Found()
}

// Next says what of a prompt its decode replica gets next.
func (t *Tandem) Next(q *cluster.Query, now time.Time, wake func()) (upto int, ask time.Duration) {
	next := t.underWay.booked[q.Slot].book.DecodeLease.Next(now, wake)
	if next.Upto >= q.Tokens || !t.asks.Exact { // the whole prompt, however many tokens it has
		next.Upto = math.MaxInt
	}
	return next.Upto, next.Ask
}

// Computed tells that a piece of a prompt is done.
func (t *Tandem) Computed(q *cluster.Query, pauses []time.Duration, now time.Time) {
	var beside decode.Pauses
	for _, pause := range pauses {
		beside.Add(pause)
	}
	t.underWay.booked[q.Slot].book.DecodeLease.Computed(true, -1, beside, now)
}

// First records the first token.
func (t *Tandem) First(q *cluster.Query, now time.Time) {
	b := &t.underWay.booked[q.Slot]
	book := b.book
	b.retry.faults.Own(now)
	b.retry.faults = nil
	t.planner.FirstToken(book, now)
	book.Decoding(now)
	if book.Mode == planner.Split {
		book.Moved(now)
	}
}

// Done ends the booking.
func (t *Tandem) Done(q *cluster.Query, output int, ttft, total time.Duration, now time.Time) {
	b := &t.underWay.booked[q.Slot]
	b.book.Counted(q.Counted)
	b.book.Finish(output, ttft, total, now)
	t.underWay.live--
	t.forget(b)
}

// Apply feeds the index of a side.
func (t *Tandem) Apply(side cluster.Side, i int, b *kv.Batch) {
	if side == cluster.Prefill {
		t.prefill.Apply(t.members.ids[side][i], b)
		return
	}
	t.decode.Apply(t.members.ids[side][i], b)
}

// Observe feeds a load report.
func (t *Tandem) Observe(side cluster.Side, i int, l replica.Load, now time.Time) {
	if side == cluster.Prefill {
		t.prefill.Observe(t.members.ids[side][i], l, now)
		return
	}
	t.decode.Observe(t.members.ids[side][i], l, now)
	t.planner.Counted(t.members.ids[side][i], l.Reads, now)
}

// Tick drops guesses that were not confirmed.
func (t *Tandem) Tick(now time.Time) {
	t.prefill.Expire(now)
	t.decode.Expire(now)
}

// LinkSpeeds returns the learned speeds of the paths between replicas.
func (t *Tandem) LinkSpeeds(now time.Time) []planner.LinkSpeed { return t.planner.LinkSpeeds(now) }
