package policies

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"tandem/internal/kv"
	"tandem/internal/replay/cluster"
	"tandem/internal/replica"
	"tandem/orchestrator/policy"
	"tandem/scoring"
)

// Replica is what a policy of the field sees of one replica: its own book-keeping, exact and at once, the
// last load report, and its index.
type Replica struct {
	Matched  int           // leading tokens that the index says it holds, at most all but one
	Requests int           // sent there and not ended (on the prefill side: not answered)
	Tokens   int           // of those prompts, uncached by the index when they were sent
	Work     time.Duration // that these take to prefill, by the profile
	Prompts  int           // of those prompts, all tokens
	Served   int           // requests ever sent there
	Since    int           // sent since the last report
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
	Now     time.Time
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

// Picker is one policy: it picks a prefill and a decode replica; p of -1 lets d prefill by itself, and [hold]
// lets the request wait.
type Picker interface {
	Pick(q *Query, ps, ds []Replica) (p, d int)
}

// Field is a router around a Picker.
type Field struct {
	guard  *ejecting // around the policy
	events [2]bool
	// Blocks of each replica that are remembered from what was sent there, in the place of events; 0: events are
	// followed.
	keeps  int
	fleet  cluster.Config
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
	name    string
	brief   string
	events  [2]bool
	make    func() Picker
	breaker bool // see [entry.detector]
	keeps   int  // see [Field]
	mixed   bool // for pools where nothing is split
}

// detector is what keeps failing replicas out: smg's circuit breaker where the policy is of its family,
// Envoy's outlier detection elsewhere. A name may ask for the breaker.
func (e *entry) detector(c cluster.Config) detector {
	if e.breaker || e.name == "kv-aware" || strings.HasPrefix(e.name, "smg-") {
		return newBreaker(c)
	}
	return newEnvoy(c)
}

// withBreaker behind the name of a policy of the field puts it behind smg's circuit breaker.
const withBreaker = "+breaker"

// trackerBlocks is how many blocks of a replica seed 000's tracker remembers.
const trackerBlocks = 100_000

// field lists the policies, with the parameters that their authors ship.
func field() []entry {
	none := [2]bool{}
	both := [2]bool{true, true}
	prefillOnly := [2]bool{true, false}
	of := func(p Picker) func() Picker { return func() Picker { return p } }
	return []entry{
		{name: "random", brief: "any replica", events: none, make: of(random{})},
		{name: "round-robin", brief: "one after the other", events: none, make: of(&roundRobin{})},
		{name: "least-requests", brief: "fewest requests in flight", events: none, make: of(leastRequests{})},
		{name: "power-of-two", brief: "the less used of two", events: none, make: of(powerOfTwo{})},
		{
			name: "vllm-dp", brief: "vLLM's own balancing of ranks: 4 x waiting + running", events: none,
			make: of(defaultVLLMDP()),
		},
		{
			name: "least-tokens", brief: "fewest uncached tokens in flight, its own included", events: prefillOnly,
			make: of(leastTokens{}),
		},
		{
			name: "session-sticky", brief: "rendezvous hash of the session, or of the prompt's head",
			events: prefillOnly, make: of(defaultSticky()),
		},
		{
			name: "lmetric", brief: "(queued + uncached tokens) x (requests + 1)", events: prefillOnly,
			make: of(lmetric{}),
		},
		{
			name: "llm-d", brief: "prefix 2 : queue 1 in both pools, prefill apart from 16 uncached tokens on",
			events: both, make: of(defaultLLMD()),
		},
		{
			name: "llm-d-10", brief: "the same, 10 : 1, as LMetric's authors tuned it", events: both,
			make: of(&llmd{prefix: 10, queue: 1, local: 16}),
		},
		{
			name: "llm-d-bottleneck", brief: "affinity filter, then fewest tokens; decode by count",
			events: prefillOnly, make: of(defaultBottleneck()),
		},
		{
			name: "kv-aware", brief: "vllm-router: uncached + queued tokens; decode by count", events: prefillOnly,
			make: of(&kvAware{}),
		},
		{
			name: "smg-cache-aware", brief: "most overlap unless unbalanced (32, 1.1); decode by count",
			events: prefillOnly, make: of(defaultSMGCacheAware()),
		},
		{
			name: "smg-least-load", brief: "tokens in flight at 2,000 a second, and KV pressure", events: prefillOnly,
			make: of(defaultSMGLeastLoad()),
		},
		{
			name: "two-state", brief: "match above 30 % unless unbalanced (64, 1.5), from what was sent",
			events: prefillOnly, make: newTwoState, keeps: trackerBlocks,
		},
		{
			name: "block-tracker", brief: "match above 30 % within 1.25 of the mean load, from what was sent",
			events: prefillOnly, make: newTracker, keeps: trackerBlocks,
		},
		{
			name: "overlap-tiers", brief: "0.6 overlap by tier + 0.3 idleness + 0.1 health; else a bounded hash",
			events: prefillOnly, make: newOverlap,
		},
		{
			name: "chwbl", brief: "consistent hash of 256 tokens with loads bounded to 1.25 of the mean",
			events: prefillOnly, make: newPrefixHash,
		},
		{
			name: "dualmap", brief: "the quicker of two hashed replicas", events: prefillOnly,
			make: of(defaultDualMap()),
		},
		{
			name:  "dynamo",
			brief: "queued + own uncached tokens, credit 1; decode by active blocks, local below 2,048", events: both,
			make: of(defaultDynamo()),
		},
		{
			name: "dynamo-1.5", brief: "the same, credit 1.5", events: both,
			make: of(&dynamo{credit: 1.5, local: 2048, share: 0.7}),
		},
		{
			name: "dynamo-mixed", brief: "its cost where nothing is split: active tokens on top", events: prefillOnly,
			make: of(defaultDynamoMixed()), mixed: true,
		},
		{
			name: "aibrix", brief: "P/D score of match and requests; decode by requests and room", events: prefillOnly,
			make: of(defaultAIBrix()),
		},
		{
			name: "aibrix-conductor", brief: "milliseconds by its constants; decode by the time of a token",
			events: prefillOnly, make: of(defaultAIBrixConductor()),
		},
		{
			name: "greedy-ttft", brief: "queued + own prefill seconds by the profile; decode by count",
			events: prefillOnly, make: of(greedy{}),
		},
		{
			name: "mooncake", brief: "the same; decode by the predicted time of a token", events: prefillOnly,
			make: of(conductor{}),
		},
		{
			name: "preble", brief: "E2: exploit above 50 %, else least load of 3 minutes", events: prefillOnly,
			make: of(defaultPreble()),
		},
		{
			name: "bailian", brief: "drawn by 0.7 hit, 0.15 requests, 0.15 tokens", events: both,
			make: of(defaultBailian()),
		},
		{
			name: "polyserve", brief: "the most loaded that keeps 5 s and 100 ms", events: prefillOnly,
			make: of(defaultPolyServe()),
		},
		{
			name: "reject-and-retry", brief: "P/D-Serve: waits at the router for a free prefill slot", events: none,
			make: of(defaultRetry()),
		},
		{
			name: "selective-push", brief: "SkyWalker: waits at the router for a replica without pending work",
			events: prefillOnly, make: of(defaultPush()),
		},
		{
			name: "netkv", brief: "least to compute; decode by transfer and step", events: both,
			make: of(defaultNetKV()),
		},
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
		{"tandem-local", "the same without Split(p, d): decode prefills everything", Options{NoSplit: true}},
		{"tandem-sequential", "the same terms, prefill first and decode given it", Options{Order: PrefillFirst}},
		{"tandem-decode-first", "the same terms, decode first and prefill given it", Options{Order: DecodeFirst}},
		{
			"tandem-split-sequential", "as tandem-sequential, without Local(d)",
			Options{NoLocal: true, Order: PrefillFirst},
		},
		{
			"tandem-two-state", "prefill by the policy two-state of production, the rest by costs",
			byRule("two-state"),
		},
		{"tandem-block-tracker", "prefill by block-tracker", byRule("block-tracker")},
		{"tandem-prefix-hash", "prefill by prefix-hash", byRule("prefix-hash")},
		{"tandem-overlap-tiers", "prefill by overlap-tiers", byRule("overlap-tiers")},
		{
			"tandem-split-decode-first", "as tandem-decode-first, without Local(d)",
			Options{NoLocal: true, Order: DecodeFirst},
		},
	}
}

// oracles lists those that know everything.
func oracles() []string { return []string{"oracle", "oracle-terms"} }

// byRule is production with a rule for its prefill pool.
func byRule(name string) Options { return Options{Rule: policy.Rule(choiceBy(name))} }

// Names lists every policy, Tandem's first and the oracles last.
func Names() []string {
	var names []string
	for _, e := range ours() {
		names = append(names, e.name)
	}
	for _, e := range field() {
		names = append(names, e.name)
	}
	return append(names, oracles()...)
}

// Baselines lists the policies of others by name, without those for pools where nothing is split.
func Baselines() []string {
	var names []string
	for _, e := range field() {
		if !e.mixed {
			names = append(names, e.name)
		}
	}
	return names
}

// find is what a policy without settings is made of: Options, an entry's Picker, or nil for an oracle.
func find(name string) (any, error) {
	for _, e := range ours() {
		if e.name == name {
			return &e.options, nil
		}
	}
	for _, e := range field() {
		if e.name == name {
			return e.make(), nil
		}
	}
	if slices.Contains(oracles(), name) {
		return nil, nil
	}
	return nil, fmt.Errorf("no policy %q: one of %v", name, Names())
}

// New makes the router of a policy. Behind its name may stand settings of its parameters, as
// "dynamo:credit=1.5:local=0".
func New(name string, c cluster.Config, seed uint64) (cluster.Router, error) {
	name, breaker := strings.CutSuffix(name, withBreaker)
	name, rule := cutLocal(name)
	base, settings, _ := strings.Cut(name, ":")
	what, err := find(base)
	if err != nil {
		return nil, err
	}
	if err := set(what, settings); err != nil {
		return nil, fmt.Errorf("policy %s: %w", base, err)
	}
	if _, ok := what.(Picker); rule != "" && !ok {
		return nil, fmt.Errorf("policy %s: %s is for policies of the field, and this one decides by itself",
			base, withLocal)
	}
	switch x := what.(type) {
	case *Options:
		return NewTandem(c, *x, seed), nil
	case Picker:
		at := slices.IndexFunc(field(), func(e entry) bool { return e.name == base })
		e := field()[at]
		e.breaker = breaker
		if rule != "" {
			local, err := localize(x, rule)
			if err != nil {
				return nil, fmt.Errorf("policy %s: %w", base, err)
			}
			if !mixed(&c) { // there, everything is prefilled where it decodes
				x, e.events = local, [2]bool{true, true}
			}
		}
		return newField(e, x, c, seed), nil
	}
	if base == "oracle" {
		return NewGreedyOracle(c, seed), nil
	}
	return NewOracle(c, policy.Default().Weights, seed), nil
}

func newField(e entry, picker Picker, c cluster.Config, seed uint64) *Field {
	f := &Field{
		events: e.events, keeps: e.keeps, fleet: c, rnd: rand.New(rand.NewPCG(seed, 0x6669656c64)),
		alone: len(c.Nodes[cluster.Prefill]) == 0,
	}
	f.guard = newEjecting(picker, e.detector(c), c, f.alone, rand.New(rand.NewPCG(seed, 0x656a656374)))
	if f.alone {
		f.events = [2]bool{false, e.events[cluster.Prefill] || e.events[cluster.Decode]}
	}
	for side := range f.sides {
		for i, r := range c.Replicas(cluster.Side(side)) {
			f.size = r.Facts.BlockSize
			f.sides[side] = append(f.sides[side],
				Replica{Capacity: r.Facts.Blocks * r.Facts.BlockSize, Speed: profile(&c.Nodes[side][i])})
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
	return scoring.Speed{
		T0: k * cost.T0, A: k * cost.A, B: k * cost.B, D0: k * cost.D0, D1: k * cost.D1, D2: k * cost.D2,
	}
}

// Events says which indexes the policy keeps.
func (f *Field) Events() [2]bool { return f.events }

// Place lets the policy pick. Hardly one of them waits for room.
func (f *Field) Place(q *cluster.Query, now time.Time) (p, d int, room bool) {
	for len(f.placed) <= q.Slot {
		f.placed = append(f.placed, placed{})
	}
	f.match(q)
	query := Query{
		Tokens: q.Tokens, Session: q.Session, Keys: q.Keys, Block: f.size, Now: now, Rand: f.rnd,
		PerToken: f.perToken,
	}
	ps, ds := f.sides[cluster.Prefill], f.sides[cluster.Decode]
	if f.alone {
		ps = ds
	}
	p, d = f.guard.Pick(&query, ps, ds)
	if p == hold {
		return 0, 0, false
	}
	if f.alone && p >= 0 {
		p, d = -1, p
	}
	f.book(q, p, d)
	return p, d, true
}

// perToken is the seconds that the KV of a token takes from p to d; none where there are no two pools.
func (f *Field) perToken(p, d int) float64 {
	if f.alone {
		return 0
	}
	class := f.fleet.Nodes[cluster.Prefill][p].Place.LinkTo(f.fleet.Nodes[cluster.Decode][d].Place)
	return float64(f.fleet.TokenBytes) / f.fleet.Links[class]
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
	if f.keeps > 0 {
		f.remember(cluster.Prefill, p, q.Keys)
		f.remember(cluster.Decode, d, q.Keys)
	}
}

// remember takes it that a replica has what was sent there, where no events are followed.
func (f *Field) remember(side cluster.Side, i int, keys []kv.Key) {
	if ix := f.index[side]; ix != nil && i >= 0 {
		ix.Assume(kv.Holder(i), keys, f.keeps)
	}
}

// send counts a request.
func (r *Replica) send(prompt int) {
	r.Requests++
	r.Since++
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
	f.sides[cluster.Decode][f.placed[q.Slot].d].end(q.Tokens)
}

// Apply feeds an index.
func (f *Field) Apply(side cluster.Side, i int, b *kv.Batch) {
	if ix := f.index[side]; ix != nil && f.keeps == 0 {
		ix.Apply(kv.Holder(i), b)
	}
}

// Observe keeps the last report.
func (f *Field) Observe(side cluster.Side, i int, l replica.Load, _ time.Time) {
	r := &f.sides[side][i]
	if l.Running >= 0 {
		r.Running, r.Since = l.Running, 0
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
