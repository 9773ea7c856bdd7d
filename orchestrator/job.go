package orchestrator

import (
	"context"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/observe"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// job is one prompt on its way to an answer: the whole request, or one prompt of a batch. One goroutine owns
// it.
//
// Long: each step needs these parts of the router, of the configuration and of the request.
type job struct {
	*env
	*snapshot
	*origin
	req *openai.Request
	of  ofBatch
	rec *observe.Record // its id is that of the job

	ids   *promptIDs // the prompt's tokens; nil: unknown
	count int        // tokens of the prompt; an estimate if ids is nil
	whole string     // why the job cannot be split; "" if it can
	plan  planner.Request

	attempts attempts

	want *openai.Continuation // keeps the tokens of the answer, so that another engine can continue it
	rest restOfAnswer
}

// ofBatch is a job's relation to its batch; zero for a single prompt.
type ofBatch struct {
	index int // of the prompt
	batch *batchState
	// An earlier prompt of the batch has entered the queue. A batch is accepted or refused as a whole.
	follows bool
}

// batchState is the state that the prompts of a batch share.
type batchState struct {
	came  atomic.Bool // a prompt came to the queue
	begun atomic.Bool // a prompt has had room
}

// restOfAnswer is the state from which a rest continues; zero for the job of a whole answer.
type restOfAnswer struct {
	delivered *openai.Delivered // the answer that the client has so far
	root      *job              // of the whole answer
	began     *replica.Replica  // where the answer broke off
	kept      int               // tokens of the answer that are in the prompt of the rest
}

// body returns the client's own request, or a request with only this job's prompt.
func (j *job) body() *openai.Edit {
	if j.req.Batched && j.req.Unsplittable == "" {
		return j.askIDs(j.req.EditPrompt(j.of.index))
	}
	return j.askIDs(j.req.Edit())
}

// tellsSteps reports whether the events of the job's stream show the engine's steps. A parser of tools delays
// tokens, unless their ids are asked for.
func (j *job) tellsSteps() bool { return !j.req.Tools || j.want != nil }

// leg opens the span of a leg of the job.
func (j *job) leg(ctx context.Context, leg string, to *replica.Replica) (context.Context, observe.LegSpan) {
	return j.spans.Leg(ctx, leg, j.rec.Path, j.rec.Model, to, j.req)
}

// fingerprint identifies the body of a request. A request that is sent again has the same fingerprint, and so
// has the rest of its answer.
func (j *job) fingerprint() uint64 { return xxhash.Sum64(j.first().req.Raw) }

// continuation returns what another engine needs to continue the job's answer, or the reason why no engine
// will.
func (j *job) continuation() (want openai.Continuation, why string) {
	mode := j.cfg.Retry.Continue
	if mode == config.ContinueOff {
		return want, continueOff
	}
	want, why = j.req.Continuation() // the reason names a field, which the client may have made up
	switch kind := j.req.Kind; {
	case why != "" && kind != openai.Completions && kind != openai.Chat:
		return want, continueAPI
	case why != "":
		return want, continueMember
	case !want.Greedy && mode != config.ContinueAlways:
		return want, continueGreedy
	}
	return want, ""
}

// follow starts to keep the tokens of the job's answer, if the configuration and the request allow that
// another engine continues it.
func (j *job) follow() {
	if want, why := j.continuation(); why == "" {
		kept := want // only jobs that need it use memory
		j.want = &kept
	}
}

// given begins the record of the delivered part of one attempt's answer; nil if no engine could continue this
// answer.
func (j *job) given() *openai.Delivered {
	switch {
	case j.rest.delivered != nil:
		return j.rest.delivered.Clone()
	case j.want != nil:
		return openai.NewDelivered(j.req.Kind, *j.want)
	}
	return nil
}

// askIDs asks the engine for the token ids that the record needs. The client sees them only if it asked for
// them too.
func (j *job) askIDs(body *openai.Edit) *openai.Edit {
	if j.want != nil && !j.want.ReturnIDs {
		body.Set("return_token_ids", []byte("true"))
	}
	return body
}

// first returns the client's own job. j may be the job of a rest.
func (j *job) first() *job {
	if j.rest.root != nil {
		return j.rest.root
	}
	return j
}

// goesOnAt reports whether d can continue an answer: d has the tokenizer that made the token ids, accepts
// token ids, and has the weights of the engine that began the answer.
func (j *job) goesOnAt(d *replica.Replica) bool {
	other := j.rest.began != nil && planner.OtherWeights(j.rest.began, d, j.req.Model) != ""
	return reuses(&d.Facts, j.req.Kind) && j.ids.legs(d) != nil && !other
}

// legsFor returns the ids for the two legs of a pair with the decode replica d: see [promptIDs.legs].
func (j *job) legsFor(d *replica.Replica) *legIDs { return j.ids.legs(d) }

// idsJSON returns the prompt's token ids as JSON. The JSON must exist already.
func (j *job) idsJSON() []byte { return j.ids.json }

// idsLen returns how many token ids the prompt has.
func (j *job) idsLen() int { return len(j.ids.list) }

// counted reports whether the number of tokens comes from token ids, and is no estimate.
func (j *job) counted() bool { return j.ids != nil }

func (j *job) exact() bool { return j.ids != nil && j.ids.exact }

// prompt returns the job's prompt of a completion; nil for a chat.
func (j *job) prompt() *openai.Prompt {
	if j.of.index < len(j.req.Prompts) {
		return &j.req.Prompts[j.of.index]
	}
	return nil
}
