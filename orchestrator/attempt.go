package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"tandem/internal/config"
	"tandem/internal/kv"
	"tandem/internal/openai"
	"tandem/internal/replica"
	"tandem/orchestrator/outlier"
	"tandem/orchestrator/planner"
)

// job is one prompt on its way to an answer: the whole request, or one prompt of a batch. One goroutine owns
// it.
type job struct {
	q     *request
	req   *openai.Request
	id    string // of the job; the request's id, with the prompt's index behind it in a batch
	index int    // of the prompt in a batch
	rec   *Record

	ids   *promptIDs // the prompt's tokens, nil when unknown
	count int        // tokens of the prompt, estimated when ids is nil
	whole string     // why it cannot be split, "" when it can
	plan  planner.Request

	tries      int
	faults     planner.FailedAttempts // what its failed attempts were held against
	budgeted   bool                   // it holds a place in the retry budget
	failedAt   replica.ID             // where the attempt before failed
	failedWhen string                 // in which phase
	avoided    []avoided              // whom it is not planned on for its failures, oldest first
	// Two replicas have failed alike, and said so: only one that was not asked yet can tell whose fault it is.
	third bool

	want *openai.Continuation // of an answer whose tokens are kept, so that another engine can go on with it
	// What the client has got already, where this is the job of the rest of an answer.
	rest   *openai.Delivered
	restOf *job // and the job of the whole
	kept   int  // and how many tokens of the answer its prompt holds
}

// newJob begins a job. path is the front-door path it came through.
func (q *request) newJob(req *openai.Request, index int) *job {
	j := &job{q: q, req: req, id: q.id, index: index}
	if req != nil && req.Batched {
		j.id += "-" + strconv.Itoa(index)
	}
	j.rec = newRecord(j.id, q.path, q.start, q.snap.inForce)
	j.rec.ClientID = q.clientID
	if q.rec == nil {
		q.rec = j.rec
	}
	if req != nil {
		if req.N > 1 {
			j.rec.Samples = req.N
		}
		j.rec.Model, j.rec.Streamed = req.Model, req.Stream
	}
	return j
}

// answer runs the job until the engine that will generate has begun to answer well: its status is 200 and, in
// a stream, the first content is there. Whoever gets the answer must close it. Failed attempts are repeated
// elsewhere as long as the retry rules allow.
func (j *job) answer(ctx context.Context) (*answer, *failure) {
	if f := j.tokenize(ctx); f != nil {
		return nil, f
	}
	j.follow()
	j.prepare()
	return j.try(ctx)
}

// try sends attempts until one begins well or another would not help.
func (j *job) try(ctx context.Context) (*answer, *failure) {
	var first *failure
	for {
		j.tries++
		j.rec.Attempts = j.tries
		a, f := j.attempt(ctx)
		switch {
		case f == nil:
			j.ownFaults()
			return a, nil
		case first != nil && first.tells() && f.phase == "plan":
			// Nobody else is left to try: the client gets what an engine said or did.
			j.lost()
			j.rec.Attempts--
			return nil, first
		}
		first = f
		if f.at != "" {
			j.q.o.fleet.Failed(f.at, f.err)
		}
		if f.forgotten() {
			j.q.o.fleet.ModelUnknown(f.at)
		}
		if !j.again(ctx, f) {
			j.lost()
			return nil, f
		}
		j.retried(f)
	}
}

// retried counts a failure that the job is tried again for, and says so.
func (j *job) retried(f *failure) {
	j.q.o.m.retries.WithLabelValues(f.phase).Inc()
	j.q.o.log.Info("trying again elsewhere", "id", j.id, "phase", f.phase, "replica", string(f.at), "kind",
		f.kind, "status", f.status, "error", f.cause())
}

// serve gets the answer, lets deliver give it to the client, and closes the books behind it, a panic
// included.
func (j *job) serve(ctx context.Context, deliver func(a *answer) *failure) (f *failure) {
	a, f := j.answer(ctx)
	if f != nil {
		j.finish(f, nil)
		return f
	}
	f = &failure{phase: "stream", owner: "us", kind: "panic", status: http.StatusInternalServerError}
	defer func() {
		a.settle(f)
		j.finish(f, a)
	}()
	f = deliver(a)
	return f
}

// again decides whether a failed attempt is worth another: never after a client error, within the attempts
// and the retry budget, and not when two different replicas failed in the same phase, since then the request
// itself is the likely cause. Two kinds of second failure are tried on: at a replica that is ejected since it
// fails others too, and where the engine itself said that it failed, so that it lives and a third can tell. A
// failed prefill costs no client an answer, where a decode replica may compute the prompt.
func (j *job) again(ctx context.Context, f *failure) bool {
	bad, out, likeBefore := j.faults.Judged()
	second := j.failedWhen == f.phase && j.failedAt != f.at && f.kind != "unreachable" && !bad
	// Whom a client does not wait to see tried elsewhere has no second opinion.
	if second && likeBefore && !f.answered() || ctx.Err() != nil {
		j.excuse(ctx.Err() == nil)
	}
	if !f.retry || ctx.Err() != nil || j.tries >= j.q.snap.cfg.Retry.Attempts {
		return false
	}
	alone := j.fallsBack(f, second)
	if second && !alone && !f.answered() {
		return false
	}
	j.avoidFailed(f)
	if j.third = second && !alone; j.third && !j.othersLeft() {
		return false
	}
	if !alone && !f.harmless() && !out && !j.takeBudget() && !j.engineEnded(ctx, f) && !j.awaitsVerdict(ctx, f) {
		if !j.mayPrefillThere(f) {
			return false
		}
		alone = true
	}
	j.failedWhen, j.failedAt = f.phase, f.at
	if f.alone || alone {
		j.plan.SplitOK, j.plan.LocalOK = false, true
	}
	return true
}

// verdictWait is how long a request that no place is left for in the retry budget waits for the replica where
// it failed to be ejected. One that begins to fail has failed many requests by the time that this is known,
// all of them within the time that such a failure takes.
const verdictWait = 200 * time.Millisecond

// awaitsVerdict waits for whom the newest attempt is held against to be ejected: then trying elsewhere adds
// no work to where there is too little, and needs no budget. It reports whether that came, or a place in the
// budget. Who answers with another status than 500 may be overloaded: that is what the budget is for.
func (j *job) awaitsVerdict(ctx context.Context, f *failure) bool {
	if len(j.faults) == 0 || j.mayPrefillThere(f) || f.status != http.StatusInternalServerError {
		return false
	}
	newest := &j.faults[len(j.faults)-1]
	if !newest.Answered || newest.Fault.On == planner.Nobody {
		return false
	}
	look := time.NewTicker(verdictWait / 10)
	defer look.Stop()
	for range 10 {
		select {
		case <-ctx.Done():
			return false
		case now := <-look.C:
			newest.OutNow = j.q.o.planner.KnownBad(newest.Booking, newest.Fault, now)
			if newest.OutNow || j.takeBudget() {
				return true
			}
		}
	}
	return false
}

// othersLeft reports whether anybody is left to ask who has not failed the job yet.
func (j *job) othersLeft() bool {
	_, err := j.q.o.planner.Explain(&j.plan, time.Now())
	return noReplica(err) == nil
}

// lost takes back what the attempts of a job that ends without an answer were held against, if the request is
// the likely cause.
func (j *job) lost() {
	if excuse, cause := j.faults.Lost(); excuse {
		j.excuse(cause)
	}
}

// fallsBack reports whether a decode replica is to compute the prompt itself after f: nothing came of the
// prefill that can be handed over, or it failed twice. A request after which two connections broke off may be
// what ended their engines: it gets no third.
func (j *job) fallsBack(f *failure, second bool) bool {
	if !j.mayPrefillThere(f) {
		return false
	}
	kind, _ := f.outlierKind()
	return kind == outlier.Unusable || second && kind != outlier.Broken
}

// engineEnded reports whether the connection broke off because its engine is not there any more: then trying
// elsewhere adds no work to it.
func (j *job) engineEnded(ctx context.Context, f *failure) bool {
	to := j.q.o.fleet.Endpoint(f.at)
	return f.kind == "broken" && (to == nil || j.q.dead(ctx, to))
}

// mayPrefillThere reports whether f is a failure of the prefill side after which a decode replica may do
// without it.
func (j *job) mayPrefillThere(f *failure) bool {
	return f.phase == "prefill" && j.plan.SplitOK && j.q.snap.cfg.Local != config.LocalNever
}

// search asks the planner, and again without those whom the job can no longer afford to avoid.
func (j *job) search(now time.Time) (*planner.Booking, error) {
	for {
		b, err := j.q.o.planner.Plan(&j.plan, now)
		if none := noReplica(err); none == nil || j.third || !j.relent(none) {
			return b, err
		}
	}
}

// takeBudget counts the request among those that are tried again, at most once; false when there are too many
// of them already. A retry that no engine has worked for costs nothing and needs none: see
// [failure.harmless].
func (j *job) takeBudget() bool {
	j = j.first()
	if j.budgeted {
		return true
	}
	o := j.q.o
	if o.retrying.Add(1) > o.retryBudget(j.q.snap.cfg) {
		o.retrying.Add(-1)
		return false
	}
	j.budgeted = true
	// net/http ends that context when the handler returns.
	context.AfterFunc(j.q.r.Context(), func() { o.retrying.Add(-1) })
	return true
}

// retryBudget is how many requests may be tried again at a time.
func (o *Orchestrator) retryBudget(cfg *config.Config) int64 {
	return max(int64(cfg.Retry.Min), int64(cfg.Retry.Share*float64(o.inflight.Load())))
}

// prepare makes the planner's question.
func (j *job) prepare() {
	cfg := j.q.snap.cfg
	j.whole = j.whyWhole()
	j.plan = planner.Request{
		ID: j.id, Model: j.req.Model, Tokens: j.count, Exact: j.exact(), MaxTokens: j.req.MaxTokens,
		Sequences: max(j.req.N, 1), Quiet: !j.req.Stream,
		SplitOK: j.whole == "" && cfg.Local != config.LocalAlways,
		LocalOK: cfg.Local != config.LocalNever || j.whole != "",
	}
	if j.ids != nil {
		j.nameBlocks()
		return
	}
	names := j.nameText()
	j.plan.PrefillKeys = names.prefill.Keys
	j.plan.DecodeKeys = names.decode.Keys
	j.plan.Chunk = max(names.prefill.Chunk, names.decode.Chunk)
}

// nameBlocks makes the keys of the prompt's full blocks, as each pool counts them; none while no replica has
// told its block size.
func (j *job) nameBlocks() {
	p, adapter, ok := j.q.o.prefill.Chain(j.req.Model)
	if ok {
		j.plan.PrefillKeys = j.keys(p, adapter)
	}
	d, adapter, known := j.q.o.decode.Chain(j.req.Model)
	switch {
	case known && ok && d == p:
		j.plan.DecodeKeys = j.plan.PrefillKeys
	case known:
		j.plan.DecodeKeys = j.keys(d, adapter)
	}
}

func (j *job) keys(chain kv.Chain, adapter string) []kv.Key {
	return chain.Append(make([]kv.Key, 0, len(j.ids.list)/chain.BlockSize()),
		chain.Root(adapter, j.req.CacheSalt), j.ids.list)
}

// attempt plans, waits for room if it must, and sends the legs.
func (j *job) attempt(ctx context.Context) (a *answer, f *failure) {
	b, f := j.book(ctx)
	if f != nil {
		return nil, f
	}
	h := &handoff{j: j, b: b, cfg: j.q.snap.cfg, attempt: j.id, cancel: func(error) {}}
	defer func() {
		if a == nil { // a panic is no reason to keep leases
			h.release()
		}
	}()
	j.recordPlan(b)
	if j.tries > 1 {
		h.attempt += "-r" + strconv.Itoa(j.tries-1)
	}
	began := time.Now()
	a, f = h.run(ctx)
	if f != nil {
		j.faults = append(j.faults, j.q.o.failedOn(b, f, j.fingerprint(), j.q.start, began))
		j.first().rec.failed(b, f, j.q.start, began)
	}
	return a, f
}

// book gets a plan with room reserved for it, waiting in the admission queue where no decode replica has
// room.
func (j *job) book(ctx context.Context) (*planner.Booking, *failure) {
	start := time.Now()
	ctx, span := j.q.o.step(ctx, "plan")
	defer span.end()
	var b *planner.Booking
	var err error
	var took time.Duration
	queued := j.q.o.queue.enter(ctx,
		entry{patience: j.q.snap.cfg.Timeouts.Queue, running: j.tries > 1 || j.rest != nil, try: func() outcome {
			began := time.Now()
			j.plan.Waited = began.Sub(j.rec.Time)
			b, err = j.search(began)
			took = time.Since(began)
			return outcomeOf(err)
		}})
	wait := time.Since(start) - took
	j.rec.Phases.Queue += ms(wait)
	j.rec.Phases.Plan += ms(took)
	j.q.o.m.observe(phaseQueue, wait)
	j.q.o.m.observe(phasePlan, took)
	if queued != nil {
		return nil, j.notAdmitted(ctx, queued, err)
	}
	if err != nil {
		return nil, j.noPlan(err)
	}
	if span.on() {
		span.span.SetAttributes(decisionAttributes(b)...)
	}
	return b, nil
}

// outcomeOf tells the queue what became of a try to plan. Whatever is no lack of room is for the request to
// hear.
func outcomeOf(err error) outcome {
	full, ok := errors.AsType[*planner.NoRoom](err)
	switch {
	case !ok:
		return goesOn
	case full.Part > largePart:
		return waitsAside
	}
	return waitsInLine
}

// largePart is the part of a replica's blocks from which a request is large: it would have to wait until a
// replica has nearly nothing else to do.
const largePart = 0.5

// notAdmitted explains why a request left the queue without a plan.
func (j *job) notAdmitted(ctx context.Context, queued, planned error) *failure {
	if ctx.Err() != nil {
		return goneFailure(ctx, "queue")
	}
	var f *failure
	switch {
	case errors.Is(queued, errQueueFull):
		f = refuse("queue", "queue_full", http.StatusTooManyRequests,
			"No decode replica has room, and the queue is full.")
	case errors.Is(queued, errDraining):
		f = refuse("queue", "draining", http.StatusServiceUnavailable,
			"The router is shutting down; send the request again.")
	default:
		f = refuse("queue", "queue_timeout", http.StatusTooManyRequests,
			"No decode replica had room within the time a request may wait.")
	}
	f.err = planned // names replicas, which is for the log
	if full, ok := errors.AsType[*planner.NoRoom](planned); ok {
		f.after = full.Retry
	}
	return f
}

// noPlan explains why no plan is possible at all.
func (j *job) noPlan(err error) *failure {
	var f *failure
	var none *planner.NoReplica
	var late *planner.TooLate
	switch {
	case errors.As(err, &none) && none.TooLarge:
		f = refuse("plan", "too_large", http.StatusBadRequest, j.tooLarge())
		f.owner = "client"
	case !j.q.o.served(j.plan.Model):
		f = refuse("plan", "unknown_model", http.StatusNotFound, "The model `"+j.plan.Model+"` does not exist.")
		f.owner = "client"
	case errors.As(err, &late):
		f = refuse("plan", "too_late", http.StatusTooManyRequests,
			"The first token would come later than this router lets requests wait.")
		f.after = late.Retry()
	case errors.As(err, &none):
		f = refuse("plan", "no_replica", http.StatusServiceUnavailable,
			"The "+none.Pool+" pool has no usable replica for this request.")
	default:
		f = refuse("plan", "no_plan", http.StatusInternalServerError, "The router could not make a plan.")
	}
	f.err = err
	return f
}

// tooLarge says why the prompt fits nowhere: in vLLM's words where the model's context is too short, since
// clients look for them.
func (j *job) tooLarge() string {
	most := 0
	for _, r := range j.q.o.fleet.Endpoints() {
		if r.Member.Role == replica.Decode && r.Member.Serves(j.plan.Model) { // no plan is without one
			most = max(most, r.Member.Facts.MaxModelLen)
		}
	}
	if most == 0 || j.plan.Tokens < most {
		return "The prompt is longer than any replica can hold."
	}
	return fmt.Sprintf("This model's maximum context length is %d tokens. However, your prompt contains %d "+
		"input tokens. "+
		"Please reduce the length of the input prompt.", most, j.plan.Tokens)
}

// served reports whether some known replica, healthy or not, answers for model; true while nothing is known.
func (o *Orchestrator) served(model string) bool {
	known := o.fleet.Endpoints()
	for _, r := range known {
		if r.Member.Serves(model) {
			return true
		}
	}
	return len(known) == 0
}

// finish closes the books of a job: what was delivered, and the record for people.
func (j *job) finish(f *failure, a *answer) {
	j.rec.Phases.Total = ms(time.Since(j.q.start))
	j.rec.Outcome, j.rec.Status = "ok", http.StatusOK
	if f != nil {
		j.rec.Outcome, j.rec.Status = f.kind, f.status
		if j.rec.Reason == "" {
			j.rec.Reason = f.Error()
		}
	}
	if a != nil {
		j.rec.Output = a.kept + a.output
		if a.promptTokens > 0 {
			j.rec.Prompt = a.promptTokens - a.kept
		}
		j.countTokens(a, f)
		if f == nil {
			j.q.o.captures.note(j)
		}
	}
	if j.q.o.traced {
		j.q.span.SetAttributes(attrModel.String(j.rec.Model))
	}
	j.q.o.m.took(j.rec)
	j.q.o.ring.add(j.rec)
}
