package policies

import (
	"fmt"
	"math/rand/v2"
	"time"

	"tandem/internal/kv"
	"tandem/internal/replay/cluster"
	"tandem/internal/replica"
)

// Replica is what a policy of the field sees of one replica: its own book-keeping, exact and at once, the last load report, and its index.
type Replica struct {
	Matched  int // leading tokens that the index says it holds, at most all but one
	Requests int // sent there and not ended (on the prefill side: not answered)
	Tokens   int // of those prompts, uncached by the index when they were sent
	Prompts  int // of those prompts, all tokens
	Served   int // requests ever sent there
	Running  int // by the last report
	Waiting  int // by the last report
	Usage    float64
	Capacity int // tokens of KV
}

// Query is the request to place.
type Query struct {
	Tokens  int
	Session uint64
	Head    uint64 // of the prompt's first two blocks: what is hashed where there is no session
	Rand    *rand.Rand
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
	sides  [2][]Replica
	depth  [2][]int32
	placed []placed // by slot
}

// placed is a request under way.
type placed struct {
	p, d, uncached int
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
		{"llm-d", "prefix 2 : queue 1 in both pools, prefill apart from 16 uncached tokens on", both, func() Picker { return llmd{} }},
		{"kv-aware", "vllm-router: uncached + queued tokens; decode by count", prefillOnly, func() Picker { return &kvAware{} }},
	}
}

// Names lists every policy, Tandem's first.
func Names() []string {
	names := []string{"tandem", "tandem-split"}
	for _, e := range field() {
		names = append(names, e.name)
	}
	return names
}

// New makes the router of that name.
func New(name string, c cluster.Config, seed uint64) (cluster.Router, error) {
	switch name {
	case "tandem":
		return NewTandem(c, Options{}, seed), nil
	case "tandem-split":
		return NewTandem(c, Options{NoLocal: true}, seed), nil
	}
	for _, e := range field() {
		if e.name == name {
			return newField(e, c, seed), nil
		}
	}
	return nil, fmt.Errorf("no policy %q: one of %v", name, Names())
}

func newField(e entry, c cluster.Config, seed uint64) *Field {
	f := &Field{picker: e.make(), events: e.events, rnd: rand.New(rand.NewPCG(seed, 0x6669656c64))}
	for side := range f.sides {
		rs := c.Replicas(cluster.Side(side))
		for _, r := range rs {
			f.size = r.Facts.BlockSize
			f.sides[side] = append(f.sides[side], Replica{Capacity: r.Facts.Blocks * r.Facts.BlockSize})
		}
		f.depth[side] = make([]int32, len(rs))
		if e.events[side] {
			f.index[side] = kv.NewIndex(kv.Options{Chain: kv.NewChain("", f.size)})
		}
	}
	return f
}

// Events says which indexes the policy keeps.
func (f *Field) Events() [2]bool { return f.events }

// Place lets the policy pick. None of them waits for room.
func (f *Field) Place(q *cluster.Query, now time.Time) (p, d int, room bool) {
	for len(f.placed) <= q.Slot {
		f.placed = append(f.placed, placed{})
	}
	f.match(q)
	query := Query{Tokens: q.Tokens, Session: q.Session, Rand: f.rnd}
	if n := len(q.Keys); n > 0 {
		query.Head = uint64(q.Keys[min(n, headBlocks)-1])
	} else {
		query.Head = f.rnd.Uint64()
	}
	p, d = f.picker.Pick(&query, f.sides[cluster.Prefill], f.sides[cluster.Decode])
	f.book(q, p, d)
	return p, d, true
}

// headBlocks are two blocks of 512 tokens, as the trace of the conversations has them, in blocks of 16.
const headBlocks = 64

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
	if p >= 0 {
		r := &f.sides[cluster.Prefill][p]
		x.uncached = q.Tokens - r.Matched
		r.Requests++
		r.Served++
		r.Tokens += x.uncached
		r.Prompts += q.Tokens
	}
	r := &f.sides[cluster.Decode][d]
	r.Requests++
	r.Served++
	r.Prompts += q.Tokens
	f.placed[q.Slot] = x
}

// Answered takes the prompt off the prefill replica's books.
func (f *Field) Answered(q *cluster.Query, _ int, _ time.Duration, _ time.Time) {
	x := &f.placed[q.Slot]
	r := &f.sides[cluster.Prefill][x.p]
	r.Requests--
	r.Tokens -= x.uncached
	r.Prompts -= q.Tokens
}

// Bind keeps the choice.
func (f *Field) Bind(q *cluster.Query, _ time.Time) int { return f.placed[q.Slot].d }

// First changes nothing.
func (f *Field) First(*cluster.Query, time.Time) {}

// Done takes the request off the decode replica's books.
func (f *Field) Done(q *cluster.Query, _ int, _, _ time.Duration, _ time.Time) {
	r := &f.sides[cluster.Decode][f.placed[q.Slot].d]
	r.Requests--
	r.Prompts -= q.Tokens
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
