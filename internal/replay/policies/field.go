package policies

import (
	"fmt"
	"math/rand/v2"
	"time"

	"tandem/internal/kv"
	"tandem/internal/replay/cluster"
	"tandem/internal/replica"
	"tandem/scoring"
)

// Replica is what a policy of the field sees of one replica: its own book-keeping, exact and at once, the last load report, and its index.
type Replica struct {
	Matched  int           // leading tokens that the index says it holds, at most all but one
	Requests int           // sent there and not ended (on the prefill side: not answered)
	Tokens   int           // of those prompts, uncached by the index when they were sent
	Work     time.Duration // that these take to prefill, by the profile
	Prompts  int           // of those prompts, all tokens
	Served   int           // requests ever sent there
	Running  int           // by the last report
	Waiting  int           // by the last report
	Usage    float64
	Capacity int // tokens of KV
	Speed    scoring.Speed
}

// Query is the request to place.
type Query struct {
	Tokens  int
	Session uint64
	Keys    []kv.Key // of the full blocks, where the policy follows events
	Block   int      // tokens of one
	Rand    *rand.Rand
}

// head names the first tokens of the prompt, or all of a shorter one.
func (q *Query) head(tokens int) uint64 {
	if n := min(len(q.Keys), tokens/max(1, q.Block)); n > 0 {
		return uint64(q.Keys[n-1])
	}
	return q.Rand.Uint64()
}

// Picker is one policy: it picks a prefill and a decode replica; p below zero lets d prefill by itself.
type Picker interface {
	Pick(q *Query, ps, ds []Replica) (p, d int)
}

// Field is a router around a Picker.
type Field struct {
	picker Picker
	events [2]bool
	rnd    *rand.Rand
	index  [2]*kv.Index
	size   int
	alone  bool // there is no prefill pool: the policy's prefill choice is made among those that decode
	sides  [2][]Replica
	depth  [2][]int32
	placed []placed // by slot
}

// placed is a request under way.
type placed struct {
	p, d     int
	uncached int // tokens
	work     time.Duration
	computes *Replica // that prefills it, until it has
}

var _ cluster.Router = (*Field)(nil)

// entry is a policy that can be named.
type entry struct {
	name   string
	brief  string
	events [2]bool
	make   func() Picker
}

// field lists the policies, with the parameters that their authors ship.
func field() []entry {
	both, prefillOnly := [2]bool{true, true}, [2]bool{true, false}
	return []entry{
		{"random", "any replica", [2]bool{}, func() Picker { return random{} }},
		{"round-robin", "one after the other", [2]bool{}, func() Picker { return &roundRobin{} }},
		{"least-requests", "fewest requests in flight", [2]bool{}, func() Picker { return leastRequests{} }},
		{"power-of-two", "the less used of two", [2]bool{}, func() Picker { return powerOfTwo{} }},
		{"least-tokens", "fewest uncached tokens in flight, its own included", prefillOnly, func() Picker { return leastTokens{} }},
		{"session-sticky", "rendezvous hash of the session, or of the prompt's head", [2]bool{true, false}, func() Picker { return sticky{} }},
		{"lmetric", "(queued + uncached tokens) x (requests + 1)", prefillOnly, func() Picker { return lmetric{} }},
		{"llm-d", "prefix 2 : queue 1 in both pools, prefill apart from 16 uncached tokens on", both, func() Picker { return llmd{prefix: 2} }},
		{"llm-d-10", "the same, 10 : 1, as LMetric's authors tuned it", both, func() Picker { return llmd{prefix: 10} }},
		{"llm-d-bottleneck", "affinity filter, then fewest tokens; decode by count", prefillOnly, func() Picker { return bottleneck{} }},
		{"kv-aware", "vllm-router: uncached + queued tokens; decode by count", prefillOnly, func() Picker { return &kvAware{} }},
		{"smg-cache-aware", "most overlap unless unbalanced (32, 1.1); decode by count", prefillOnly, func() Picker { return smgCacheAware{} }},
		{"smg-least-load", "tokens in flight at 2,000 a second, and KV pressure", prefillOnly, func() Picker { return smgLeastLoad{} }},
		{"chwbl", "consistent hash of 256 tokens with loads bounded to 1.25 of the mean", prefillOnly, func() Picker { return chwbl{} }},
		{"dualmap", "the quicker of two hashed replicas", prefillOnly, func() Picker { return dualMap{} }},
		{"dynamo", "queued + own uncached tokens, credit 1; decode by active blocks, local below 2,048", both, func() Picker { return dynamo{credit: 1} }},
		{"dynamo-1.5", "the same, credit 1.5", both, func() Picker { return dynamo{credit: 1.5} }},
		{"aibrix", "P/D score of match and requests; decode by requests and room", prefillOnly, func() Picker { return aibrix{} }},
		{"greedy-ttft", "Mooncake: queued + own prefill seconds by the profile", prefillOnly, func() Picker { return greedy{} }},
	}
}

// variant is a form of Tandem's own decision that can be named.
type variant struct {
	name    string
	brief   string
	options Options
}

// ours lists them, production's first.
func ours() []variant {
	return []variant{
		{"tandem", "the joint choice of production", Options{}},
		{"tandem-split", "the same without Local(d)", Options{NoLocal: true}},
		{"tandem-sequential", "the same terms, prefill first and decode given it", Options{Order: PrefillFirst}},
		{"tandem-decode-first", "the same terms, decode first and prefill given it", Options{Order: DecodeFirst}},
		{"tandem-split-sequential", "as tandem-sequential, without Local(d)", Options{NoLocal: true, Order: PrefillFirst}},
		{"tandem-split-decode-first", "as tandem-decode-first, without Local(d)", Options{NoLocal: true, Order: DecodeFirst}},
	}
}

// Names lists every policy, Tandem's first.
func Names() []string {
	var names []string
	for _, e := range ours() {
		names = append(names, e.name)
	}
	for _, e := range field() {
		names = append(names, e.name)
	}
	return append(names, "oracle", "oracle-terms")
}

// New makes the router of that name.
func New(name string, c cluster.Config, seed uint64) (cluster.Router, error) {
	for _, e := range ours() {
		if e.name == name {
			return NewTandem(c, e.options, seed), nil
		}
	}
	for _, e := range field() {
		if e.name == name {
			return newField(e, c, seed), nil
		}
	}
	switch name {
	case "oracle":
		return NewGreedyOracle(c, seed), nil
	case "oracle-terms":
		return NewOracle(c, scoring.Default(), seed), nil
	}
	return nil, fmt.Errorf("no policy %q: one of %v", name, Names())
}

func newField(e entry, c cluster.Config, seed uint64) *Field {
	f := &Field{picker: e.make(), events: e.events, rnd: rand.New(rand.NewPCG(seed, 0x6669656c64)), alone: len(c.Nodes[cluster.Prefill]) == 0}
	if f.alone {
		f.events = [2]bool{false, e.events[cluster.Prefill] || e.events[cluster.Decode]}
	}
	for side := range f.sides {
		for i, r := range c.Replicas(cluster.Side(side)) {
			f.size = r.Facts.BlockSize
			f.sides[side] = append(f.sides[side], Replica{Capacity: r.Facts.Blocks * r.Facts.BlockSize, Speed: profile(&c.Nodes[side][i])})
		}
		f.depth[side] = make([]int32, len(f.sides[side]))
		if f.events[side] {
			f.index[side] = kv.NewIndex(kv.Options{Chain: kv.NewChain("", f.size)})
		}
	}
	return f
}

// profile is the speed of an engine, for policies that are given one.
func profile(n *cluster.Node) scoring.Speed {
	cost := n.Engine.Cost
	k := 1.0
	if cost.Speed > 0 {
		k = 1 / cost.Speed
	}
	return scoring.Speed{T0: k * cost.T0, A: k * cost.A, B: k * cost.B, D0: k * cost.D0, D1: k * cost.D1, D2: k * cost.D2}
}

// Events says which indexes the policy keeps.
func (f *Field) Events() [2]bool { return f.events }

// Place lets the policy pick. None of them waits for room.
func (f *Field) Place(q *cluster.Query, now time.Time) (p, d int, room bool) {
	for len(f.placed) <= q.Slot {
		f.placed = append(f.placed, placed{})
	}
	f.match(q)
	query := Query{Tokens: q.Tokens, Session: q.Session, Keys: q.Keys, Block: f.size, Rand: f.rnd}
	ps, ds := f.sides[cluster.Prefill], f.sides[cluster.Decode]
	if f.alone {
		ps = ds
	}
	p, d = f.picker.Pick(&query, ps, ds)
	if f.alone && p >= 0 {
		p, d = -1, p
	}
	f.book(q, p, d)
	return p, d, true
}

func (f *Field) match(q *cluster.Query) {
	for side := range f.sides {
		if f.index[side] == nil {
			continue
		}
		f.index[side].Match(q.Keys, f.depth[side])
		for i, n := range f.depth[side] {
			f.sides[side][i].Matched = min(int(n), (q.Tokens-1)/f.size) * f.size
		}
	}
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
	x.uncached = q.Tokens - x.computes.Matched
	x.work = time.Duration(x.computes.Speed.Prefill(x.uncached, x.computes.Matched) * 1e9)
	x.computes.Work += x.work
	x.computes.Tokens += x.uncached
	f.placed[q.Slot] = x
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

// computed takes a prompt's work off the books of whoever prefilled it.
func (x *placed) computed() {
	if x.computes != nil {
		x.computes.Tokens -= x.uncached
		x.computes.Work -= x.work
		x.computes = nil
	}
}

// Answered takes the prompt off the prefill replica's books.
func (f *Field) Answered(q *cluster.Query, _ int, _ time.Duration, _ time.Time) {
	x := &f.placed[q.Slot]
	x.computed()
	f.sides[cluster.Prefill][x.p].end(q.Tokens)
}

// Bind keeps the choice.
func (f *Field) Bind(q *cluster.Query, _ time.Time) int { return f.placed[q.Slot].d }

// First takes the prompt's work off the books of a decode replica that prefilled by itself.
func (f *Field) First(q *cluster.Query, _ time.Time) { f.placed[q.Slot].computed() }

// Done takes the request off the decode replica's books.
func (f *Field) Done(q *cluster.Query, _ int, _, _ time.Duration, _ time.Time) {
	f.sides[cluster.Decode][f.placed[q.Slot].d].end(q.Tokens)
}

// Apply feeds an index.
func (f *Field) Apply(side cluster.Side, i int, b *kv.Batch) {
	if ix := f.index[side]; ix != nil {
		ix.Apply(kv.Holder(i), b)
	}
}

// Observe keeps the last report.
func (f *Field) Observe(side cluster.Side, i int, l replica.Load, _ time.Time) {
	r := &f.sides[side][i]
	if l.Running >= 0 {
		r.Running = l.Running
	}
	if l.Waiting >= 0 {
		r.Waiting = l.Waiting
	}
	if l.Usage == l.Usage {
		r.Usage = l.Usage
	}
}

// Tick changes nothing.
func (f *Field) Tick(time.Time) {}
