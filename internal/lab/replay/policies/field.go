package policies

import (
	"cmp"
	"math/rand/v2"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/internal/replica"
)

// Replica is what a policy of the field sees of one replica: its own book-keeping, exact and at once, the
// last load report, and its index.
//
// Long: a field for each thing that a policy looks at.
type Replica struct {
	Matched  int           // leading tokens that the index says it holds, at most all but one
	OnGPU    int           // the part of Matched that is on the GPU, for a policy that tells tiers apart
	Requests int           // sent there and not ended (on the prefill side: not answered)
	Tokens   int           // of their prompts, uncached by the index when they were sent
	Work     time.Duration // that these take to prefill, by the profile
	Prompts  int           // of their prompts, all tokens
	Served   int           // requests ever sent there
	Waiting  int           // by the last report
	Usage    float64       // of the KV memory, by the last report
	Capacity int           // tokens of KV
	Speed    estimate.Speed
	Host     time.Duration // of each step, beside the Speed

	goals map[time.Duration]int // requests by their goal for tokens, on the decode side
}

// Query is the request to place.
type Query struct {
	Tokens  int
	Session uint64
	Keys    []kv.Key // of the full blocks, where the policy follows events
	Block   int      // tokens of one
	Now     time.Time
	TTFT    time.Duration // goals of its class; 0: none
	TPOT    time.Duration
	Rand    *rand.Rand

	// Seconds that the KV of a token takes from a prefill to a decode replica, by the configured speed of the
	// path.
	PerToken func(p, d int) float64
}

// head names the first tokens of the prompt, or all of a shorter one.
func (q *Query) head(tokens int) uint64 {
	if n := min(len(q.Keys), tokens/max(1, q.Block)); n > 0 {
		return uint64(q.Keys[n-1])
	}
	return q.Rand.Uint64()
}

// Picker is one policy: it picks a prefill and a decode replica; p of -1 lets d
// prefill by itself.
type Picker interface {
	Pick(q *Query, ps, ds []Replica) (p, d int)
}

// Field is a router around a Picker.
type Field struct {
	guard  *ejecting // around the policy
	events [2]bool
	sent   sent
	fleet  cluster.Config
	rnd    *rand.Rand
	index  [2]*kv.Index
	tiers  byTier // of the prefill side
	size   int
	alone  bool // there is no prefill pool: the policy's prefill choice is among decode replicas
	sides  [2][]Replica
	depth  [2][]int32
	placed []placed // by slot
}

// sent says what is remembered of sent prompts.
type sent struct {
	keeps int // blocks of each replica, instead of events; 0: events are followed
	head  int // tokens of a prompt that are matched; 0 for all
}

// placed is a request under way.
type placed struct {
	p, d     int
	uncached int // tokens
	work     time.Duration
	computes *Replica // that prefills it, until it has
}

var _ cluster.Router = (*Field)(nil)

func newField(e entry, picker Picker, c cluster.Config, seed uint64) *Field {
	f := &Field{
		events: e.events, sent: e.sent, fleet: c, rnd: rand.New(rand.NewPCG(seed, 0x6669656c64)),
		alone: len(c.Nodes[cluster.Prefill]) == 0,
	}
	f.guard = newEjecting(picker, e.detector(c), c, f.alone, rand.New(rand.NewPCG(seed, 0x656a656374)))
	if f.alone {
		f.events = [2]bool{false, e.events[cluster.Prefill] || e.events[cluster.Decode]}
	}
	for side := range f.sides {
		for i, r := range c.Replicas(cluster.Side(side)) {
			node := c.ToldNode(cluster.Side(side), i)
			f.size = f.unit(&r.Facts)
			f.sides[side] = append(f.sides[side],
				Replica{Capacity: r.Facts.Blocks * r.Facts.BlockSize, Speed: profile(&node), Host: hostOf(&node)})
		}
		f.depth[side] = make([]int32, len(f.sides[side]))
		if f.events[side] && !c.Misstated.Nothing {
			f.index[side] = kv.NewIndex(kv.Options{Chain: kv.NewChain("", f.size)})
		}
	}
	if all := f.index[cluster.Prefill]; e.tiers && all != nil {
		f.tiers = newByTier(all, f.size, len(f.sides[cluster.Prefill]))
	}
	return f
}

// unit is the number of tokens in the unit of matching: a block, or a chunk of text. Chunks are remembered
// from sent prompts, as many as a replica has room for, because events have token ids only.
func (f *Field) unit(r *replica.Facts) int {
	if f.fleet.Misstated.Text == 0 {
		return r.BlockSize
	}
	if f.sent.keeps == 0 {
		f.sent.keeps = r.Blocks * r.BlockSize / cluster.Chunk
	}
	return cluster.Chunk
}

// profile is the speed of an engine, for policies that are given one.
func profile(n *cluster.Node) estimate.Speed {
	cost := n.Engine.Cost
	k := 1.0
	if cost.Speed > 0 {
		k = 1 / cost.Speed
	}
	return estimate.Speed{
		T0: k * cost.T0, A: k * cost.A, B: k * cost.B, D0: k * cost.D0, D1: k * cost.D1, D2: k * cost.D2,
	}
}

// hostOf is what the host of an engine adds to each step.
func hostOf(n *cluster.Node) time.Duration {
	return time.Duration(n.Engine.Cost.Host / cmp.Or(n.Engine.Cost.Speed, 1) * 1e9)
}

// Events says which indexes the policy keeps.
func (f *Field) Events() [2]bool { return f.events }

// Place lets the policy pick. Few policies wait for room.
func (f *Field) Place(q *cluster.Query, now time.Time) (p, d int, room bool) {
	for len(f.placed) <= q.Slot {
		f.placed = append(f.placed, placed{})
	}
	f.match(q)
	query := Query{
		Tokens: q.Tokens, Session: q.Session, Keys: q.Keys, Block: f.size, Now: now, Rand: f.rnd,
		PerToken: f.perToken,
	}
	if q.Class != nil {
		query.TTFT, query.TPOT = q.Class.TTFT, q.Class.TPOT
	}
	ps, ds := f.sides[cluster.Prefill], f.sides[cluster.Decode]
	if f.alone {
		ps = ds
	}
	p, d = f.guard.Pick(&query, ps, ds)
	if f.alone && p >= 0 {
		p, d = -1, p
	}
	f.book(q, p, d)
	f.tiers.believe(p, q.Keys, now)
	return p, d, true
}

// perToken is the seconds that the KV of a token takes from p to d; none where there are no two pools.
func (f *Field) perToken(p, d int) float64 {
	if f.alone {
		return 0
	}
	class := f.fleet.Nodes[cluster.Prefill][p].Place.LinkTo(f.fleet.Nodes[cluster.Decode][d].Place)
	return float64(f.fleet.TokenBytes) / f.fleet.ToldLinks()[class]
}

func (f *Field) match(q *cluster.Query) {
	for side := range f.sides {
		if f.index[side] == nil {
			continue
		}
		f.index[side].Match(f.matched(q), f.depth[side])
		for i, n := range f.depth[side] {
			r := &f.sides[side][i]
			if r.Matched = min(int(n), (q.Tokens-1)/f.size) * f.size; q.Chunk > 0 {
				r.Matched = min(int(float64(n)*q.Chunk), q.Tokens-1)
			}
			r.OnGPU = r.Matched
		}
	}
	f.tiers.match(q, f.size, f.sides[cluster.Prefill])
}

// matched is the part of a prompt that the policy looks at.
func (f *Field) matched(q *cluster.Query) []kv.Key {
	if f.sent.head > 0 {
		return q.Keys[:min(len(q.Keys), f.sent.head/f.size)]
	}
	return q.Keys
}

func (f *Field) book(q *cluster.Query, p, d int) {
	x := placed{p: p, d: d}
	r := &f.sides[cluster.Decode][d]
	if p >= 0 {
		f.sides[cluster.Prefill][p].send(q.Tokens)
		x.computes = &f.sides[cluster.Prefill][p]
	} else {
		x.computes = r
	}
	r.send(q.Tokens)
	r.promise(q, 1)
	x.uncached = q.Tokens - x.computes.Matched
	x.work = time.Duration(x.computes.Speed.Prefill(x.uncached, x.computes.Matched) * 1e9)
	x.computes.Work += x.work
	x.computes.Tokens += x.uncached
	f.placed[q.Slot] = x
	if f.sent.keeps > 0 {
		f.remember(cluster.Prefill, p, f.matched(q))
		f.remember(cluster.Decode, d, f.matched(q))
	}
}

// remember assumes that a replica has the prompts sent to it, if no events are followed.
func (f *Field) remember(side cluster.Side, i int, keys []kv.Key) {
	if ix := f.index[side]; ix != nil && i >= 0 {
		ix.Assume(kv.Holder(i), keys, f.sent.keeps)
	}
}

// send counts a request.
func (r *Replica) send(prompt int) {
	r.Requests++
	r.Served++
	r.Prompts += prompt
}

// end takes a request off the books.
func (r *Replica) end(prompt int) {
	r.Requests--
	r.Prompts -= prompt
}

// computed takes a prompt's work off the books of the replica that prefilled it.
func (x *placed) computed() {
	if x.computes != nil {
		x.computes.Tokens -= x.uncached
		x.computes.Work -= x.work
		x.computes = nil
	}
}

// Answered takes the prompt off the prefill replica's books.
func (f *Field) Answered(q *cluster.Query, _ int, _ time.Duration, now time.Time) {
	x := &f.placed[q.Slot]
	f.guard.well(cluster.Prefill, x.p, now)
	x.computed()
	f.sides[cluster.Prefill][x.p].end(q.Tokens)
}

// Bind keeps the choice.
func (f *Field) Bind(q *cluster.Query, _ time.Time) int { return f.placed[q.Slot].d }

// First takes the prompt's work off the books of a decode replica that prefilled by itself.
func (f *Field) First(q *cluster.Query, now time.Time) {
	x := &f.placed[q.Slot]
	x.computed()
	f.guard.well(cluster.Decode, x.d, now)
	delete(f.guard.tries, q)
}

// Done takes the request off the decode replica's books.
func (f *Field) Done(q *cluster.Query, _ int, _, _ time.Duration, _ time.Time) {
	r := &f.sides[cluster.Decode][f.placed[q.Slot].d]
	r.end(q.Tokens)
	r.promise(q, -1)
}

// Apply feeds an index.
func (f *Field) Apply(side cluster.Side, i int, b *kv.Batch) {
	if side == cluster.Prefill && f.tiers.apply(kv.Holder(i), b) {
		return
	}
	if ix := f.index[side]; ix != nil && f.sent.keeps == 0 {
		ix.Apply(kv.Holder(i), b)
	}
}

// Observe keeps the last report.
func (f *Field) Observe(side cluster.Side, i int, l replica.Load, _ time.Time) {
	r := &f.sides[side][i]
	if l.Waiting >= 0 {
		r.Waiting = l.Waiting
	}
	r.Usage = l.Usage
}

// Tick drops what was believed for too long.
func (f *Field) Tick(now time.Time) { f.tiers.expire(now) }
