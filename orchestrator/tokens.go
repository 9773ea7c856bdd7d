package orchestrator

import (
	"context"
	"errors"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/tokenizer"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/observe"
)

// tokenize finds the token ids of the job's prompt, once: the client's own ids, otherwise ids from an engine,
// otherwise an estimate of their number. Only ids that the engine itself would make from the request are put
// on the legs. Other ids are only for the index.
func (j *job) tokenize(ctx context.Context) *failure {
	result, f := j.resolved(ctx, j.resolve)
	j.ids, j.count = newPromptIDs(&result, j.prompt()), result.Count
	return f
}

// resolved runs resolve, and records the result. A refusal of the prompt is the request's failure.
func (j *job) resolved(
	ctx context.Context, resolve func(context.Context) tokenizer.Result,
) (tokenizer.Result, *failure) {
	start := time.Now()
	defer func() {
		took := time.Since(start)
		j.rec.Phases.Tokenize += ms(took)
		j.m.Phases.Observe(observe.PhaseTokenize, took)
	}()
	ctx, span := j.spans.Step(ctx, "tokenize")
	result := resolve(ctx)
	if span.On() {
		span.Set(observe.AttrTokensSource.String(result.Source.String()), observe.AttrTokensCount.Int(result.Count))
	}
	span.End()
	j.rec.Tokenizer = result.Source.String()
	j.m.Requests.TokenIDs.WithLabelValues(j.rec.Tokenizer).Inc()
	rejected, isRejected := errors.AsType[*tokenizer.Rejected](result.Err)
	switch {
	case isRejected && (j.req.Kind == openai.Messages || j.req.Kind == openai.Responses):
		return result, nil // the API itself may answer in other words, so it gets the whole request
	case isRejected:
		return result, answered(kindStatus, site{phase: phaseTokenize, status: rejected.Status}, rejected.Body, "")
	case ctx.Err() != nil:
		return result, goneFailure(ctx, site{phase: phaseTokenize})
	}
	return result, nil
}

// resolve finds the source of the ids and asks it.
func (j *job) resolve(ctx context.Context) tokenizer.Result {
	if p := j.prompt(); p != nil && p.IDs != nil {
		return tokenizer.Result{IDs: p.IDs, Count: len(p.IDs), Source: tokenizer.Client, Exact: true}
	}
	if j.req.Unsplittable != "" {
		return j.estimate() // the request goes whole to one replica, so the number is enough
	}
	if j.cfg.Tokenizer.Source == config.TokensNone {
		return j.estimate()
	}
	return j.askAny(ctx, nil)
}

// askAny asks an engine that skip (which may be nil) does not exclude. If this engine does not answer in
// time, it asks another.
func (j *job) askAny(ctx context.Context, skip func(*fleet.Endpoint) bool) tokenizer.Result {
	to := j.fleet.Any(j.req.Model, skip)
	result := j.askFor(ctx, to)
	if to == nil || result.Source != tokenizer.Estimate || result.Err != nil || !to.Owes(time.Now()) {
		return result
	}
	if other := j.fleet.Another(to, j.req.Model, skip); other != nil {
		return j.askFor(ctx, other)
	}
	return result
}

// askFor asks an engine for the ids; nil if there is no engine to ask.
func (j *job) askFor(ctx context.Context, to *fleet.Endpoint) tokenizer.Result {
	if to == nil {
		return j.estimate()
	}
	via := tokenizer.Via{
		Key: to.Server(), Release: to.Member.Release(), Post: to.Post, Render: to.Member.Facts.Render,
	}
	r := j.tokens.Load()
	if p := j.prompt(); p != nil {
		return r.Completion(ctx, via, j.req.Model, p.Text, j.req.Raw)
	}
	if kind := j.req.Kind; kind != openai.Chat {
		return r.Conversation(ctx, via, kind.Path(), j.req.Raw)
	}
	return r.Chat(ctx, via, j.req.Raw)
}

// estimate assumes four bytes for each token, or the configured number.
func (j *job) estimate() tokenizer.Result {
	text := j.req.Raw
	if p := j.prompt(); p != nil && p.Text != nil {
		text = p.Text
	}
	return tokenizer.Result{
		Count: tokenizer.EstimateTokens(text, j.cfg.Tokenizer.CharsPerToken), Source: tokenizer.Estimate,
	}
}

// idsFor returns the ids that both legs of a pair with the decode replica d carry; nil if both carry the
// client's own body. If the known ids are from another release than that of d, as in a rolling upgrade, an
// engine of d's release is asked. If both legs use the same path, the prefill replica p must accept ids there
// too.
func (j *job) idsFor(ctx context.Context, p, d *replica.Replica) (*legIDs, *failure) {
	byIDs := j.exact() && (j.byContent() || reuses(&d.Facts, j.req.Kind))
	if j.idsOnly() && (!byIDs || j.connect.Traits().SamePath && !reuses(&p.Facts, j.req.Kind)) {
		return nil, refuse(kindNoIDs, site{phase: phaseTokenize})
	}
	if !byIDs {
		return nil, nil
	}
	if ids := j.legsFor(d); ids != nil {
		return ids, nil
	}
	if f := j.tokenizeFor(ctx, d); f != nil {
		return nil, f
	}
	ids := j.legsFor(d)
	if ids == nil && (j.req.Kind == openai.Messages || j.req.Kind == openai.Responses || j.idsOnly()) {
		// Such requests are split by ids or not at all.
		return nil, refuse(kindNoIDs, site{phase: phaseTokenize})
	}
	return ids, nil
}

// tokenizeFor finds the ids that engines of d's release make from the prompt. If no engine answers, the known
// ids remain, for the index.
func (j *job) tokenizeFor(ctx context.Context, d *replica.Replica) *failure {
	release := d.Release()
	other := func(r *fleet.Endpoint) bool { return !r.Member.Release().Agrees(release) }
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
