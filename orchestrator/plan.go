package orchestrator

import (
	"context"
	"errors"
	"time"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/observe"
	"github.com/tandem-router/tandem/orchestrator/planner"
	"github.com/tandem-router/tandem/scoring"
)

// prepare collects the planner's inputs.
func (j *job) prepare() {
	cfg := j.cfg
	j.whole = j.whyWhole()
	j.plan = planner.Request{
		ID: j.rec.ID, Model: j.req.Model, Tokens: j.count, Exact: j.exact(), MaxTokens: j.req.MaxTokens,
		Sequences: j.sequences(), Quiet: !j.req.Stream, Class: j.class(), Goals: scoring.Goals(j.goals),
		SplitOK: j.whole == "" && cfg.Local != config.LocalAlways,
		LocalOK: cfg.Local != config.LocalNever || j.whole != "",
		Pieces:  j.whole == "" && j.exact(),
		Pulls:   j.connect.Traits().Pulls && !j.fleet.SomeDistrusted(),
		Fixed:   j.connect.Traits().NamesDecode,
	}
	// Nothing shows when an answer that is not streamed has waited for a source. vLLM gives all sequences of a
	// request the same question.
	j.plan.PullsWhole = j.whole == "" && j.req.Stream && j.plan.Sequences == 1 &&
		(j.req.Kind == openai.Chat || j.req.Kind == openai.Completions)
	if j.byContent() {
		j.plan.StoreUnit = max(j.connect.Traits().Chunk, 1)
	}
	if j.ids != nil {
		j.nameBlocks()
		return
	}
	names := nameText(j)
	j.plan.PrefillKeys = names.prefill.Keys
	j.plan.DecodeKeys = names.decode.Keys
	j.plan.Chunk = max(names.prefill.Chunk, names.decode.Chunk)
}

// sequences returns how many answers the engine computes for the job's request. All prompts of a batch that
// is not split go in one request.
func (j *job) sequences() int {
	n := max(j.req.N, 1)
	if j.req.Batched && j.req.Unsplittable != "" {
		n *= j.req.InBatch
	}
	return n
}

// class returns what the request says about the length of its answer, besides its limit.
func (j *job) class() estimate.Class {
	h := &j.req.Hints
	return estimate.Class{
		Tenant: j.tenant, API: uint8(j.req.Kind), Tools: j.req.Tools, Structured: h.Structured,
		Stops: h.Stops,
		Hint:  h.Output,
	}
}

// nameBlocks makes the keys of the prompt's full blocks for each pool; none while no replica has reported its
// block size.
func (j *job) nameBlocks() {
	p, adapter, ok := j.prefill.Chain(j.req.Model)
	if ok {
		j.plan.PrefillKeys, j.plan.PrefillBlock = j.blockKeys(p, adapter), p.BlockSize()
	}
	d, adapter, known := j.decode.Chain(j.req.Model)
	switch {
	case known && ok && d == p:
		j.plan.DecodeKeys, j.plan.DecodeBlock = j.plan.PrefillKeys, p.BlockSize()
	case known:
		j.plan.DecodeKeys, j.plan.DecodeBlock = j.blockKeys(d, adapter), d.BlockSize()
	}
}

func (j *job) blockKeys(chain kv.Chain, adapter string) []kv.Key {
	return chain.Append(make([]kv.Key, 0, len(j.ids.list)/chain.BlockSize()),
		chain.Root(adapter, j.req.CacheSalt), j.ids.list)
}

// tried is the result of the newest try to plan.
type tried struct {
	b    *planner.Booking
	err  error
	took time.Duration
}

// book gets a plan with a booking. If no decode replica has room, it waits in the admission queue.
func (j *job) book(ctx context.Context) (*planner.Booking, *failure) {
	if j.connect.Traits().NoPlain && !j.plan.SplitOK {
		return nil, unsplit(j.whole)
	}
	return j.bookInTurn(ctx)
}

// bookInTurn is book for a request that the engines can serve.
func (j *job) bookInTurn(ctx context.Context) (*planner.Booking, *failure) {
	start := time.Now()
	ctx, span := j.spans.Step(ctx, "plan")
	defer span.End()
	j.asks()
	var found tried
	queued := j.queue.enter(ctx, entry{
		claim:    claimOf(j),
		patience: j.patience(start),
		more:     func() time.Duration { return j.patience(start) - time.Since(start) },
		running:  j.admitted,
		place:    j.place,
		try: func() outcome {
			began := time.Now()
			readyToTry(j, began)
			found.b, found.err = j.search(began)
			found.took = time.Since(began)
			return outcomeOf(found.b, found.err)
		},
	})
	wait := time.Since(start) - found.took
	j.rec.Phases.Queue += ms(wait)
	j.rec.Phases.Plan += ms(found.took)
	j.m.Phases.Observe(observe.PhaseQueue, wait)
	j.m.Phases.Observe(observe.PhasePlan, found.took)
	if late := j.tooLateFor(queued, found.err); late != nil {
		return nil, j.unplanned(late)
	}
	if queued != nil {
		return nil, notAdmitted(ctx, queued, found.err)
	}
	if found.err != nil {
		return nil, j.unplanned(found.err)
	}
	j.seen.Runs(string(found.b.Prefill.ID), string(found.b.Decode.ID))
	if span.On() {
		span.Set(observe.DecisionAttributes(found.b)...)
	}
	return found.b, nil
}

// place names the decode replicas that may serve the job. A job that avoids a replica must not wait before
// jobs that find room there.
func (j *job) place() uint64 { return j.decode.Servers(j.plan.Model, j.plan.AvoidDecode) }

// unplanned explains why no plan is possible at all.
func (j *job) unplanned(err error) *failure {
	if late, ok := errors.AsType[*planner.TooLate](err); ok {
		j.m.Decisions.Predicted.Observe(late.Predicted.Seconds())
	}
	return noPlan(j.fleet, &j.plan, j.rec.Alias, err)
}

// asks records that the job asks for a plan: in its batch, and once among the running requests.
func (j *job) asks() {
	if j.attempts.tries > 1 {
		return
	}
	if batch := j.of.batch; batch != nil && !j.of.follows {
		j.of.follows = batch.came.Swap(true)
	}
	if j.rest.delivered == nil {
		j.seen.Asks(j.rec.Model, j.rec.Class, j.count)
	}
}

// admitted reports whether the queue has accepted the request before, or the request has had room before.
func (j *job) admitted() bool { return j.of.follows || j.attempts.tries > 1 || j.begun() }

// begun reports whether the job continues an answer, or belongs to a batch of which another prompt has had
// room.
func (j *job) begun() bool {
	return j.rest.delivered != nil || j.of.batch != nil && j.of.batch.begun.Load()
}

// patience returns how long a request may still wait for room: at most until its first token would be too
// late with any room. A request that has begun is not refused for lack of room: the rest of an answer has the
// time of a first token (see [beginRest]), a batch that of a whole answer.
func (j *job) patience(now time.Time) time.Duration {
	if j.begun() {
		return j.cfg.Timeouts.Answer
	}
	patience := j.cfg.Timeouts.Queue
	if limit := j.firstTokenBy(); limit > 0 {
		patience = min(patience, max(limit-now.Sub(j.rec.Time), 0))
	}
	return patience
}

// firstTokenBy returns after how long the first token is too late, by the class or by limits.first_token; 0
// for never. It is 0 for a request that has begun. The class alone does not refuse a request that a replica
// has failed.
func (j *job) firstTokenBy() time.Duration {
	switch usual := j.cfg.Limits.FirstToken; {
	case j.begun(), j.cfg.Experimental.Scoring.Units == config.Raw:
		return 0
	case j.attempts.tries > 1:
		return usual
	default:
		return j.origin.class.FirstBy(j.goals, usual)
	}
}

// tooLateFor returns the reason if a request was refused because it waited in the queue for as long as it may
// wait for its first token; nil for other reasons. room is the result of its newest try.
func (j *job) tooLateFor(queued, room error) error {
	waited, limit := time.Since(j.rec.Time), j.firstTokenBy()
	if !errors.Is(queued, errQueueTime) || limit <= 0 || waited < limit {
		return nil
	}
	if full, ok := errors.AsType[*planner.NoRoom](room); ok {
		waited += full.Retry
	}
	return &planner.TooLate{Predicted: waited, Limit: limit}
}

// search asks the planner. It asks again without the replicas that the job can no longer avoid.
func (j *job) search(now time.Time) (*planner.Booking, error) {
	for {
		b, err := j.planner.Plan(&j.plan, now)
		if none := noReplica(err); none == nil || !j.attempts.relent(&j.plan, none) {
			return b, err
		}
	}
}

// outcomeOf reports the result of a try to the queue. Every error except lack of room goes to the request.
func outcomeOf(b *planner.Booking, err error) outcome {
	full, ok := errors.AsType[*planner.NoRoom](err)
	switch {
	case b != nil:
		return outcome{verdict: goesOn, cost: b.Cost()}
	case !ok:
		return outcome{verdict: goesOn}
	}
	found := full.Found()
	if found.Aside {
		return outcome{verdict: waitsAside}
	}
	return outcome{verdict: waitsInLine, room: found.Room, every: found.Every, work: found.Work}
}

// byContent reports whether a decode engine finds the blocks by its own prompt. Then the engine needs no
// token ids from the router, and a prompt that differs from the prefilled one costs only time.
func (j *job) byContent() bool { return j.connect.Traits().Order == connector.Shared }

// idsOnly reports whether the job is split by token ids or not at all, because of its connector.
func (j *job) idsOnly() bool {
	traits := j.connect.Traits()
	return traits.IDsOnly || traits.SamePath && j.req.Kind != openai.Completions
}

// whyWhole returns the reason why the job cannot be split; "" if it can. It is called after the search for
// the prompt's ids.
func (j *job) whyWhole() string {
	kind := j.req.Kind
	switch {
	case j.req.Unsplittable != "":
		return j.req.Unsplittable
	case !j.idsOnly() && (kind == openai.Completions || kind == openai.Chat):
		return ""
	case !j.exact():
		return "no engine renders " + kind.Path() + " to token ids"
	case j.byContent():
		return ""
	case j.connect.Traits().SamePath && kind != openai.Chat:
		// /v1/responses ignores the id that names both ends.
		return "the connector does not carry " + kind.Path()
	}
	for _, r := range j.fleet.Endpoints() {
		takes := r.Member.Role == replica.Decode || j.connect.Traits().SamePath
		if takes && r.Member.Serves(j.req.Model) && !reuses(&r.Member.Facts, kind) {
			return "not every " + r.Member.Role.String() + " replica takes token ids on " + kind.Path()
		}
	}
	return ""
}
