package orchestrator

import (
	"context"

	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/tokenizer"
	"github.com/tandem-router/tandem/orchestrator/fleet"
)

// promptIDs are the token ids of a prompt, with their origin. They name the prompt's blocks for the index,
// where foreign ids cost hits at most. Onto a leg they come through [promptIDs.legs] only.
type promptIDs struct {
	legIDs                  // the JSON is made when it is first needed
	of      replica.Release // whose tokenizer and template made them
	clients bool            // the client sent them: they are the prompt, for any reader
	exact   bool            // an engine of the release would make the same ids from the request
}

// legIDs are token ids that both legs of one pair carry.
type legIDs struct {
	list []uint32
	json []byte // the same
}

// newPromptIDs returns nil where no ids are known.
func newPromptIDs(r *tokenizer.Result, own *openai.Prompt) *promptIDs {
	if len(r.IDs) == 0 {
		return nil
	}
	ids := &promptIDs{legIDs: legIDs{list: r.IDs}, of: r.Of, exact: r.Exact}
	if r.Source == tokenizer.Client {
		ids.clients, ids.json = true, own.IDsRaw
	}
	return ids
}

// legs returns the ids for the two legs of a pair with the decode replica d, nil if d itself would make
// other ids. The prefill replica computes any ids that it gets, and the planner makes sure that d can use
// its blocks.
func (p *promptIDs) legs(d *replica.Replica) *legIDs {
	if p == nil || !p.exact || !p.clients && !p.of.Agrees(d.Facts.Release()) {
		return nil
	}
	if p.json == nil {
		p.json = openai.AppendIDs(nil, p.list)
	}
	return &p.legIDs
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

// legIDs returns the ids that both legs of a pair with the decode replica d carry, nil where both carry the
// client's own body. Where those that are known are of another release than d, as in a rolling upgrade, an
// engine of d's release is asked.
func (j *job) legIDs(ctx context.Context, d *replica.Replica) (*legIDs, *failure) {
	if !j.exact() || !reuses(&d.Facts, j.req.Kind) {
		return nil, nil
	}
	if ids := j.legsFor(d); ids != nil {
		return ids, nil
	}
	if f := j.tokenizeFor(ctx, d); f != nil {
		return nil, f
	}
	ids := j.legsFor(d)
	if ids == nil && (j.req.Kind == openai.Messages || j.req.Kind == openai.Responses) {
		// They are split by ids or not at all.
		return nil, refuse(kindNoIDs, site{phase: phaseTokenize})
	}
	return ids, nil
}

// tokenizeFor finds the ids that engines of d's release make of the prompt. Where none of them tells, those
// that are known stay, for the index.
func (j *job) tokenizeFor(ctx context.Context, d *replica.Replica) *failure {
	release := d.Facts.Release()
	other := func(r *fleet.Endpoint) bool { return !r.Member.Facts.Release().Agrees(release) }
	result, f := j.resolved(ctx, func(ctx context.Context) tokenizer.Result {
		return j.askAny(ctx, other)
	})
	if ids := newPromptIDs(&result, nil); f == nil && ids != nil {
		j.ids, j.count = ids, result.Count
		j.plan.Tokens, j.plan.Exact = j.count, j.exact()
		j.nameBlocks()
	}
	return f
}
