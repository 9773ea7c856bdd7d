package planner

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/roster"
	"github.com/tandem-router/tandem/orchestrator/outlier"
	"github.com/tandem-router/tandem/prefill"
	"github.com/tandem-router/tandem/scoring"
)

// Planner chooses and books. Safe for concurrent use.
//
// Long: all state of a choice, and two parts with locks of their own.
type Planner struct {
	prefill  *prefill.Pool
	decode   *decode.Pool
	outliers outlier.Set // which replicas and pairs fail; has its own lock
	store    *Store      // has its own lock

	mu         sync.Mutex // held while a plan is chosen and booked; guards the following
	policy     *policyInForce
	rnd        *rand.Rand
	pairs      *pairs
	flights    flights
	comparison *comparison
	refusal    refusal
	ruling     ruling
	texts      map[string]estimate.TextLength // by base model
}

// New returns a planner over the two pools. rnd breaks ties; the planner alone uses it from now on.
func New(p *prefill.Pool, d *decode.Pool, policy Policy, rnd *rand.Rand) *Planner {
	if rnd == nil {
		rnd = rand.New(rand.NewPCG(1, 2))
	}
	inForce := new(policyInForce)
	pairs := newPairs(inForce)
	pl := &Planner{
		prefill: p, decode: d, rnd: rnd, policy: inForce, pairs: pairs, flights: newFlights(pairs, d),
		texts: map[string]estimate.TextLength{},
		store: &Store{base: d.Base, of: map[string]*place{}},
	}
	pl.comparison = &comparison{policy: inForce, pairs: pairs}
	p.SetShared(pl.store.heard)
	d.SetShared(pl.store.heard)
	pl.refusal = refusal{p, d, &pl.outliers, pl.comparison}
	pl.SetPolicy(policy)
	return pl
}

// Store returns what the shared store is believed to have. Safe for concurrent use.
func (pl *Planner) Store() *Store { return pl.store }

// Outliers returns the failure counts of replicas and pairs. Safe for concurrent use.
func (pl *Planner) Outliers() *outlier.Set { return &pl.outliers }

// SetPolicy puts p in force for every plan from now on. Learned numbers stay.
func (pl *Planner) SetPolicy(p Policy) {
	p.check()
	pl.mu.Lock()
	defer pl.mu.Unlock()
	pl.prefill.Configure(prefill.Settings{
		Speed: p.Prefill, LoadTTL: p.PrefillLoadTTL, Samples: p.Learning.Samples,
	})
	pl.decode.Configure(decode.Settings{
		Speed: p.Decode, LoadTTL: p.DecodeLoadTTL, Margin: p.HeadroomMargin,
		ExpectedOutput: p.ExpectedOutput, OutputDoubt: p.OutputDoubt, Piece: p.Piece,
		Learning: p.Learning,
	})
	pl.outliers.Configure(p.Ejection)
	*pl.policy = newPolicyInForce(p)
	pl.policy.handOver(&pl.pairs.handover)
	pl.pairs.stale()
}

// question is a request as the pools are asked about it. Its memory is used again: nothing that outlives the
// answer points into it.
type question struct {
	*Request
	local   bool // some plan may be Local; set by evaluate
	prefill prefill.Query
	decode  decode.Query
	asked   scoring.Asked

	// Memory for the matches.
	prefillDepth, decodeDepth []int32
	prefillBelow, decodeBelow []kv.Below
	sources                   []roster.Source // engines that have blocks of the prompt

	stored int // tokens of the prompt that the shared store gives; above 0 no prefill replica is needed
}

var questions = sync.Pool{New: func() any { return new(question) }}

// over gives back the memory of q, whose answer exists.
func (q *question) over() {
	*q = question{
		prefillDepth: q.prefillDepth, decodeDepth: q.decodeDepth, prefillBelow: q.prefillBelow,
		decodeBelow: q.decodeBelow, sources: q.sources,
	}
	questions.Put(q)
}

// maxReplans bounds how often a plan is made again because a pool changed between choosing and booking.
const maxReplans = 3

// Plan chooses the best plan for req and books it on both pools. The error is *[NoRoom], *[NoReplica] or
// *[TooLate].
func (pl *Planner) Plan(req *Request, now time.Time) (*Booking, error) {
	q := pl.ask(req, now)
	defer q.over()
	for range maxReplans {
		b, err := pl.choose(q, now)
		if err != nil {
			return nil, err
		}
		if b != nil {
			b.speculate(req, now)
			return b, nil
		}
	}
	return nil, errChanged
}

// errChanged says that a plan may be possible by now.
var errChanged = &NoRoom{Reason: "replicas changed while the plan was made", Retry: decode.MinRetry}

// Explain is Plan without booking, with every exclusion named.
func (pl *Planner) Explain(req *Request, now time.Time) (*Decision, error) {
	q := pl.ask(req, now)
	defer q.over()
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if !pl.evaluate(q, now) {
		return nil, pl.refusal.refuse(q, now)
	}
	d := pl.comparison.record(q, now)
	d.Excluded = pl.refusal.all(q, now)
	return d, nil
}

// ask matches the prompt's prefix in both indexes. The caller calls [question.over] at the end.
func (pl *Planner) ask(req *Request, now time.Time) *question {
	q := questions.Get().(*question)
	req = q.about(req, pl.store.gives(req, now))
	tokens, chunk := pl.lengthOf(req)
	if !req.Exact { // an estimated prompt is never refused as too long: plan with the most that can be booked
		tokens = min(tokens, pl.decode.Bookable(req.Model))
	}
	q.decodeDepth = sized(q.decodeDepth, pl.decode.Holders())
	q.decodeBelow = sized(q.decodeBelow, len(q.decodeDepth))
	named := roster.Prompt{Keys: req.DecodeKeys, Block: req.DecodeBlock, Tokens: tokens, Chunk: chunk}
	pl.decode.MatchTiers(named, q.decodeDepth, q.decodeBelow)
	q.decode = decode.Query{
		Model: req.Model, Tokens: tokens, Estimate: !req.Exact, MaxTokens: req.MaxTokens, Sequences: req.Sequences,
		Class: req.Class, Keys: req.DecodeKeys, Block: req.DecodeBlock, Chunk: chunk, Depth: q.decodeDepth,
		Below: q.decodeBelow, Avoid: req.AvoidDecode, Pieces: req.Pieces, Prefills: pl.prefill.Prefills(req.Model),
		Stored: q.stored,
	}
	if req.Goals != (scoring.Goals{}) {
		q.asked = scoring.Asked{Goals: req.Goals, Waited: req.Waited}
		q.decode.Asked = &q.asked
	}
	pulls := req.Pulls && (pl.prefill.Pulls() || pl.decode.Pulls())
	if !req.SplitOK && !pulls {
		return q
	}
	q.prefillDepth = sized(q.prefillDepth, pl.prefill.Holders())
	q.prefillBelow = sized(q.prefillBelow, len(q.prefillDepth))
	decoding := named
	named.Keys, named.Block = req.PrefillKeys, req.PrefillBlock
	pl.prefill.MatchTiers(named, q.prefillDepth, q.prefillBelow)
	q.prefill = prefill.Query{
		Model: req.Model, Tokens: tokens, Estimate: !req.Exact, Depth: q.prefillDepth, Chunk: chunk,
		Below: q.prefillBelow, Block: req.PrefillBlock, Avoid: req.AvoidPrefill,
		Prefills: pl.decode.Prefills(req.Model),
	}
	if pulls {
		pl.findSources(q, named, decoding)
	}
	return q
}

// about makes req the request of q. If the shared store gives its prompt, it goes to a decode replica alone.
func (q *question) about(req *Request, stored int) *Request {
	if stored > 0 {
		req = req.alone()
	}
	q.Request, q.stored = req, stored
	return req
}

// findSources fills in the engines from which a candidate of q may pull blocks of the prompt that it
// computes, with vLLM's P2P tier. Then a plan has a third choice beside waiting for the engine that has the
// prefix, and computing the prefix again.
func (pl *Planner) findSources(q *question, prefill, decode roster.Prompt) {
	q.sources = pl.prefill.Sources(q.sources[:0], q.Model, pl.prefill.Matches(q.prefillDepth, prefill))
	q.sources = pl.decode.Sources(q.sources, q.Model, pl.decode.Matches(q.decodeDepth, decode))
	q.sources = slices.DeleteFunc(q.sources, func(s roster.Source) bool {
		return slices.Contains(q.AvoidPrefill, s.ID) || slices.Contains(q.AvoidDecode, s.ID)
	})
	if len(q.sources) > 0 {
		q.prefill.Pulls = roster.Pulls{Sources: q.sources, Time: pl.pairs.pullTime}
		q.decode.Pulls, q.decode.PullsWhole = q.prefill.Pulls, q.PullsWhole
	}
}

// lengthOf returns the tokens of a prompt and of its chunks of text. Estimates are corrected by what engines
// have counted.
func (pl *Planner) lengthOf(req *Request) (tokens int, chunk float64) {
	tokens, chunk = max(req.Tokens, 1), req.Chunk
	if req.Exact {
		return tokens, chunk
	}
	base := pl.decode.Base(req.Model)
	pl.mu.Lock()
	defer pl.mu.Unlock()
	text := pl.texts[base]
	ratio := text.Ratio()
	return max(1, int(ratio*float64(tokens))), ratio * chunk
}

// sized returns room for n numbers, whose contents do not matter.
func sized[T any](room []T, n int) []T { return slices.Grow(room[:0], n)[:n] }

// choose picks and books in one critical section. It returns nil and no error if a pool changed in between.
func (pl *Planner) choose(q *question, now time.Time) (*Booking, error) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if !pl.evaluate(q, now) {
		if err := pl.refusal.refuse(q, now); !errors.Is(err, errChanged) {
			return nil, err
		}
		return nil, nil
	}
	if err := cmp.Or(pl.comparison.late(q), behind(pl.comparison, q)); err != nil {
		return nil, err
	}
	return pl.book(q, now), nil
}

// evaluate compares the plans and chooses. It reports whether there is any plan.
func (pl *Planner) evaluate(q *question, now time.Time) bool {
	b := pl.comparison
	q.local = q.LocalOK && !pl.policy.NoLocal
	b.prefills = b.prefills[:0]
	var pv *prefill.View
	if q.SplitOK {
		b.prefills, pv = pl.prefill.Candidates(&q.prefill, now, b.prefills, nil)
	} else {
		// All requests share the table of pairs, also requests that ask no prefill replica.
		pv = pl.prefill.CurrentView()
	}
	var dv *decode.View
	failing, out := pl.outliers.Active(now), &ejections{}
	if failing {
		out.pricePrefills(&pl.refusal, pv, now)
	}
	b.pricePrefills()
	q.decode.Ready = b.ready()
	q.decode.Split, q.decode.Local = len(b.prefills) > 0, q.local
	b.decodes, dv, b.rejected = pl.decode.Candidates(&q.decode, now, b.decodes[:0], nil)
	if len(b.decodes) > 0 {
		pl.policy.priceFor(dv.Replicas[b.decodes[0].Slot].Facts.Model)
	}
	pl.pairs.refresh(pv, dv)
	pl.pairs.ease(now)
	pl.flights.overdue(now)
	if failing {
		out.priceDecodes(&pl.refusal, q, now)
	}
	b.priceDecodes(q)
	if pl.pick(q, out, now); b.plans == 0 && out.any() && !pl.refusal.waits(q, now) {
		out.pairs, out.forced = pl.outliers.PairsWrong(), append(out.forced, "ejected pairs")
		if pl.pick(q, out, now); b.plans == 0 { // no two of the remaining replicas can work together
			out.keepPairs()
			pl.pick(q, out, now)
		}
	}
	b.forced = strings.Join(out.forced, ", ")
	return b.plans > 0
}

// pick chooses among the plans, without the pairs that failed the request before, and without out.
func (pl *Planner) pick(q *question, out *ejections, now time.Time) {
	b := pl.comparison
	b.table.Admit()
	b.excludeSaturated()
	for _, pair := range q.AvoidPairs {
		b.excludePair(pair)
	}
	b.excludeOtherWeights(q)
	out.from(b)
	if pl.policy.ruled() != "" && len(b.prefills) > 0 {
		pl.ruling.restrict(b, q, pl.rnd)
	}
	b.chosen, b.ties, b.plans = b.table.Choose(pl.rnd, b.best[:], b.locals[:])
	pl.noteRho(b.chosen, now)
	for _, c := range b.best {
		pl.noteRho(c, now)
	}
}

// noteRho fills in the share of busy time of c's prefill replica, for a plan that is recorded. Prices read
// it only where requests wait, so it may be missing until now.
func (pl *Planner) noteRho(c scoring.Choice, now time.Time) {
	if c.Prefill >= 0 {
		p := &pl.comparison.prefills[c.Prefill]
		p.Rho = pl.prefill.Rho(p, now)
	}
}

func seconds(s float64) time.Duration {
	return time.Duration(min(s, math.MaxInt32) * float64(time.Second))
}
