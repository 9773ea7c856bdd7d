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

	ids   *promptIDs // the prompt's tokens, nil when unknown
	count int        // tokens of the prompt, estimated when ids is nil
	whole string     // why it cannot be split, "" when it can
	plan  planner.Request

	attempts attempts

	want *openai.Continuation // of an answer whose tokens are kept, so that another engine can go on with it
	rest restOfAnswer
}

// ofBatch is a job's relation to its batch; zero if there is one prompt.
type ofBatch struct {
	index int // of the prompt
	batch *batchState
	// Another prompt of the batch came to the queue before this one: a batch is taken or refused as a whole.
	follows bool
}

// batchState is what the prompts of one batch know of each other.
type batchState struct {
	came  atomic.Bool // a prompt came to the queue
	begun atomic.Bool // a prompt has had room
}

// restOfAnswer is what the job of the rest of an answer goes on with; zero for the job of a whole one.
type restOfAnswer struct {
	delivered *openai.Delivered // what the client has got already
	root      *job              // of the whole answer
	began     *replica.Replica  // where the answer broke off
	kept      int               // tokens of the answer that the prompt of the rest holds
}

// body is the client's own request, or this job's prompt from it.
func (j *job) body() *openai.Edit {
	if j.req.Batched && j.req.Unsplittable == "" {
		return j.askIDs(j.req.EditPrompt(j.of.index))
	}
	return j.askIDs(j.req.Edit())
}

// tellsSteps reports whether the events of the job's stream come as its engine's steps do. A parser of tools
// holds tokens back, unless their ids are asked for.
func (j *job) tellsSteps() bool { return !j.req.Tools || j.want != nil }

// leg opens the span of a leg of the job.
func (j *job) leg(ctx context.Context, leg string, to *replica.Replica) (context.Context, observe.LegSpan) {
	return j.spans.Leg(ctx, leg, j.rec.Path, j.rec.Model, to, j.req)
}

// fingerprint identifies the body of a request. A request that is sent again has the same fingerprint, and
// so has the rest of its answer after any break.
func (j *job) fingerprint() uint64 { return xxhash.Sum64(j.first().req.Raw) }

// continuation returns what another engine has to know to go on with the job's answer, or why none will.
func (j *job) continuation() (want openai.Continuation, why string) {
	mode := j.cfg.Retry.Continue
	if mode == config.ContinueOff {
		return want, continueOff
	}
	want, why = j.req.Continuation() // names a field, which may be of the client's own making
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

// follow has the tokens of the job's answer kept, where the configuration and the request allow that another
// engine goes on with it.
func (j *job) follow() {
	if want, why := j.continuation(); why == "" {
		kept := want // memory only for jobs that need it
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

// askIDs asks the engine for the token ids that the record needs. The client does not see them unless it
// asked too.
func (j *job) askIDs(body *openai.Edit) *openai.Edit {
	if j.want != nil && !j.want.ReturnIDs {
		body.Set("return_token_ids", []byte("true"))
	}
	return body
}

// first is the client's own job, of which this may do the rest.
func (j *job) first() *job {
	if j.rest.root != nil {
		return j.rest.root
	}
	return j
}

// goesOnAt reports whether d can continue an answer: d has the tokenizer that made the token ids, takes token
// ids, and has the weights of the engine that began the answer.
func (j *job) goesOnAt(d *replica.Replica) bool {
	other := j.rest.began != nil && planner.OtherWeights(j.rest.began, d, j.req.Model) != ""
	return reuses(&d.Facts, j.req.Kind) && j.ids.legs(d) != nil && !other
}

// legsFor returns the ids for the two legs of a pair with the decode replica d: see [promptIDs.legs].
func (j *job) legsFor(d *replica.Replica) *legIDs { return j.ids.legs(d) }

// idsJSON is the prompt's token ids as JSON, which has been made by then.
func (j *job) idsJSON() []byte { return j.ids.json }

// idsLen is how many token ids the prompt has.
func (j *job) idsLen() int { return len(j.ids.list) }

// counted reports whether the number of tokens is that of token ids, and no estimate.
func (j *job) counted() bool { return j.ids != nil }

func (j *job) exact() bool { return j.ids != nil && j.ids.exact }

// prompt is the job's prompt of a completion, nil for a chat.
func (j *job) prompt() *openai.Prompt {
	if j.of.index < len(j.req.Prompts) {
		return &j.req.Prompts[j.of.index]
	}
	return nil
}
