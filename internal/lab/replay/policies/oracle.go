package policies

import (
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/scoring"
)

// Oracle decides with the true, present state of the fleet: the engines' caches, their remaining work, the
// lengths of answers, the times when links are free. It does not know future requests, and delays no request.
// It cannot run in production: it shows what more knowledge would be worth.
type Oracle struct {
	model   scoring.Model
	greedy  bool            // only the request's own TTFT counts
	pieces  *OracleInPieces // nil if prompts are sent whole
	rnd     *rand.Rand
	truth   *cluster.Truth
	fleet   *cluster.Config
	placed  []foreseen // by slot
	history history
	tasks   []core.Task
	asked   asked
}

// history is the traffic so far.
type history struct {
	meters [2][]estimate.Utilization // of prefills
	rates  [2][]estimate.ArrivalRate
	// Tokens of all answers so far, and the number of answers.
	outputs, seen float64
}

// asked is the request to place.
type asked struct {
	sides  [2][]outlook // its outlook on every engine
	tokens int
	output int
	hashes []kv.EngineHash // of its blocks
}

// foreseen is a request in flight.
type foreseen struct {
	p, d   int
	open   bool            // its prompt is not computed yet
	hashes []kv.EngineHash // of its blocks
}

// outlook is the state that a request would find on one engine. Times are seconds from now.
type outlook struct {
	cached  int     // tokens
	wait    float64 // until the engine would begin with the request
	own     float64 // time to compute its prompt
	room    float64 // until a decode engine has room for its prompt
	link    float64 // until its side of the network is free
	taken   float64 // until prompts ahead leave room in a step: running prompts come first and fill steps
	step    float64 // a decode step with the request
	batch   int     // sequences that decode there now or later
	active  int     // requests that decode now
	usage   float64
	missing float64 // bytes
}

var (
	_ cluster.Router = (*Oracle)(nil)
	_ cluster.Seer   = (*Oracle)(nil)
)

// NewGreedyOracle makes an oracle that takes the plan with the least TTFT. Among equal plans it takes the
// smaller batch.
func NewGreedyOracle(c cluster.Config, seed uint64) *Oracle {
	o := NewOracle(c, scoring.Weights{Alpha: scoring.Alpha{Value: 1}, Beta: 1, DecodePenalty: 1e-6}, seed)
	o.greedy = true
	return o
}

// NewOracle makes an oracle that uses the true terms with these weights.
func NewOracle(c cluster.Config, w scoring.Weights, seed uint64) *Oracle {
	o := &Oracle{
		model: w.Model(0, 0), rnd: rand.New(rand.NewPCG(seed, 0x6f726163)),
	}
	for side := range o.asked.sides {
		n := len(c.Nodes[side])
		o.asked.sides[side], o.history.meters[side] = make([]outlook, n), make([]estimate.Utilization, n)
		o.history.rates[side] = make([]estimate.ArrivalRate, n)
	}
	return o
}

// See gives the oracle the truth.
func (o *Oracle) See(t *cluster.Truth) { o.truth, o.fleet = t, t.Config() }

// Events returns that the oracle needs no events.
func (o *Oracle) Events() [2]bool { return [2]bool{} }

// Place takes the pair or the single decode replica with the least cost.
func (o *Oracle) Place(q *cluster.Query, now time.Time) (p, d int, room bool) {
	o.look(q)
	best, ties := math.Inf(1), 0
	take := func(i, j int, cost float64) {
		switch {
		case cost < best-1e-9:
			best = cost
			ties = 1
			p = i
			d = j
		case cost < best+1e-9:
			if ties++; o.rnd.IntN(ties) == 0 {
				p, d = i, j
			}
		}
	}
	for j := range o.asked.sides[cluster.Decode] {
		for i := range o.asked.sides[cluster.Prefill] {
			take(i, j, o.split(i, j, now))
		}
		take(-1, j, o.alone(j, now))
	}
	o.book(q, p, d, now)
	return p, d, true
}

func (o *Oracle) book(q *cluster.Query, p, d int, now time.Time) {
	x := o.at(q)
	*x = foreseen{p: p, d: d, open: true, hashes: append(x.hashes[:0], o.asked.hashes...)}
	o.history.outputs += float64(o.asked.output)
	o.history.seen++
	o.history.rates[cluster.Decode][d].Add(now)
	side, i := cluster.Decode, d
	if p >= 0 {
		side, i = cluster.Prefill, p
		o.history.rates[side][i].Add(now)
	}
	o.truth.Expect(q, o.asked.sides[side][i].cached)
	o.history.meters[side][i].Add(now, o.asked.sides[side][i].own)
}

// queue is the state of an engine's queue for a request that waits this many seconds.
func (o *Oracle) queue(side cluster.Side, i int, wait float64, now time.Time) scoring.Queue {
	if o.greedy {
		return scoring.Queue{Wait: wait}
	}
	h := &o.history
	return scoring.Queue{Wait: wait, Arrivals: h.rates[side][i].Rate(now), Rho: h.meters[side][i].Rho(now)}
}

func (o *Oracle) at(q *cluster.Query) *foreseen {
	for len(o.placed) <= q.Slot {
		o.placed = append(o.placed, foreseen{})
	}
	return &o.placed[q.Slot]
}

// split is the cost of a pair.
func (o *Oracle) split(i, j int, now time.Time) float64 {
	p := &o.asked.sides[cluster.Prefill][i]
	on := scoring.Prefill{
		Queue: o.queue(cluster.Prefill, i, p.wait, now),
		Warm:  p.own, Usage: p.usage,
	}
	return o.model.Prefill(&on).Total() + o.hand(i, j, p.wait+p.own) + o.decoding(j)
}

// hand is the time from the end of a prefill to the first token: waiting for room and links, the transfer,
// and a step. The prefill ends in prefilled seconds.
func (o *Oracle) hand(i, j int, prefilled float64) float64 {
	p, d := &o.asked.sides[cluster.Prefill][i], &o.asked.sides[cluster.Decode][j]
	class := o.fleet.Nodes[cluster.Prefill][i].Place.LinkTo(o.fleet.Nodes[cluster.Decode][j].Place)
	there := max(prefilled, d.room, p.link, d.link) + d.missing/o.fleet.Links[class] + o.fleet.Setup.Seconds()
	wait := d.taken - there
	if wait < 0 && d.active > 0 {
		wait = d.step / 2 // the mean rest of the running step
	}
	return there - prefilled + max(0, wait) + d.step
}

// decoding is the delay of the other requests on j, and the cost of a full cache.
func (o *Oracle) decoding(j int) float64 { return o.model.Decode(new(o.decode(j))).Total() }

// decode is the state that q would find on j.
func (o *Oracle) decode(j int) scoring.Decode {
	d := &o.asked.sides[cluster.Decode][j]
	c := o.truth.Engine(cluster.Decode, j)
	marginal := (c.Cost.D1 + c.Cost.D2*float64(o.asked.tokens+o.asked.output/2)) / speedOf(&c.Cost)
	return scoring.Decode{
		Running: float64(d.batch), Marginal: marginal, Output: float64(o.asked.output), Usage: d.usage,
		Usual: o.history.outputs / max(o.history.seen, 1),
	}
}

// alone is the cost if decode replica j also prefills.
func (o *Oracle) alone(j int, now time.Time) float64 {
	d := &o.asked.sides[cluster.Decode][j]
	on := o.decode(j)
	on.Local = scoring.Local{
		Queue: o.queue(cluster.Decode, j, max(d.wait, d.room), now),
		Warm:  d.own, Active: float64(d.active),
	}
	if o.pieces != nil {
		on.Local = o.pieces.local(j, on.Local)
	}
	return o.model.Local(&on).Total()
}

// look computes the outlook of q on every engine.
func (o *Oracle) look(q *cluster.Query) {
	o.asked.tokens, o.asked.output = q.Tokens, o.truth.Output(q)
	o.asked.hashes = append(o.asked.hashes[:0], o.truth.Hashes(q)...)
	for side := range o.asked.sides {
		for i := range o.asked.sides[side] {
			o.asked.sides[side][i] = o.outlook(cluster.Side(side), i, q)
		}
	}
}

func (o *Oracle) outlook(side cluster.Side, i int, q *cluster.Query) outlook {
	c := o.truth.Engine(side, i)
	o.tasks = o.truth.Tasks(side, i, o.tasks[:0])
	found := max(o.truth.Cached(side, i, o.asked.hashes), o.queued(side, i, q.Slot))
	x := outlook{
		cached: min(found, (q.Tokens-1)/c.BlockSize) * c.BlockSize, link: o.truth.Link(side, i).Seconds(),
	}
	blocks := (q.Tokens + c.BlockSize - 1) / c.BlockSize
	x.missing = float64((blocks*c.BlockSize - x.cached) * o.fleet.TokenBytes)
	x.usage = 1 - float64(o.truth.Free(side, i))/float64(c.Blocks-1)
	rest := o.truth.Rest(side, i).Seconds()
	ahead := o.ahead()
	x.wait = rest + ahead.seconds(&c)
	x.own = ahead.plus(q.Tokens-x.cached, x.cached).seconds(&c) + rest - x.wait
	if side == cluster.Decode {
		coming, promised := o.truth.Coming(i, q)
		x.active, x.batch = ahead.decode, len(o.tasks)+coming
		one := load{decode: ahead.decode + 1, context: ahead.context + q.Tokens}
		whole := ahead
		whole.tokens -= ahead.tokens % max(1, c.MaxBatchedTokens-ahead.decode)
		x.taken, x.step = rest+whole.seconds(&c), one.step(&c)
		x.room = o.room(i, &c, blocks-x.cached/c.BlockSize+promised/c.BlockSize, x.step)
	}
	return x
}

// queued returns how many leading blocks of the request the tasks before it on an engine will have computed.
func (o *Oracle) queued(side cluster.Side, i, slot int) int {
	most := 0
	for k := range o.tasks {
		at, err := strconv.Atoi(o.tasks[k].ID)
		if err != nil || at == slot || at >= len(o.placed) || !o.placed[at].open {
			continue
		}
		x := &o.placed[at]
		if side == cluster.Prefill && x.p == i || side == cluster.Decode && x.p < 0 && x.d == i {
			most = max(most, kv.Common(x.hashes, o.asked.hashes))
		}
	}
	return most
}

// Answered records that the prompt is computed.
func (o *Oracle) Answered(q *cluster.Query, _ int, _ time.Duration, _ time.Time) {
	o.placed[q.Slot].open = false
}

// Bind chooses the decode replica again.
func (o *Oracle) Bind(q *cluster.Query, _ time.Time) int {
	x := &o.placed[q.Slot]
	if x.p < 0 {
		return x.d
	}
	o.look(q)
	best := math.Inf(1)
	for j := range o.asked.sides[cluster.Decode] {
		if cost := o.hand(x.p, j, 0) + o.decoding(j); cost < best-1e-9 {
			best, x.d = cost, j
		}
	}
	return x.d
}

// First records that a prompt on its decode replica is computed.
func (o *Oracle) First(q *cluster.Query, _ time.Time) { o.placed[q.Slot].open = false }

// Done forgets the request.
func (o *Oracle) Done(q *cluster.Query, _ int, _, _ time.Duration, _ time.Time) {
	x := &o.placed[q.Slot]
	*x = foreseen{hashes: x.hashes[:0]}
}

// Apply changes nothing.
func (o *Oracle) Apply(cluster.Side, int, *kv.Batch) {}

// Observe changes nothing.
func (o *Oracle) Observe(cluster.Side, int, replica.Load, time.Time) {}

// Tick changes nothing.
func (o *Oracle) Tick(time.Time) {}
