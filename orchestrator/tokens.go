package orchestrator

import (
	"context"
	"errors"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/tokenizer"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/observe"
)

// tokenize finds the token ids of the job's prompt, once: the client's own, else an engine's, else an
// estimate of their number. Only ids that the engine itself would make of the request are put on the legs;
// others serve the index alone.
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
		return result, nil // the API itself may say it in other words: it gets the request whole
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
		return j.estimate() // goes whole to one replica: the number is enough
	}
	if j.cfg.Tokenizer.Source == config.TokensNone {
		return j.estimate()
	}
	return j.askAny(ctx, nil)
}

// askAny asks an engine that skip (which may be nil) does not leave out, and another engine if the first
// does not answer in time.
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

// askFor asks an engine for the ids, nil where there is none to ask.
func (j *job) askFor(ctx context.Context, to *fleet.Endpoint) tokenizer.Result {
	if to == nil {
		return j.estimate()
	}
	facts := &to.Member.Facts
	via := tokenizer.Via{Key: to.Server(), Release: facts.Release(), Post: to.Post, Render: facts.Render}
	r := j.tokens.Load()
	if p := j.prompt(); p != nil {
		return r.Completion(ctx, via, j.req.Model, p.Text, j.req.Raw)
	}
	if kind := j.req.Kind; kind != openai.Chat {
		return r.Conversation(ctx, via, kind.Path(), j.req.Raw)
	}
	return r.Chat(ctx, via, j.req.Raw)
}

// estimate takes four bytes a token, or what the configuration says.
func (j *job) estimate() tokenizer.Result {
	text := j.req.Raw
	if p := j.prompt(); p != nil && p.Text != nil {
		text = p.Text
	}
	return tokenizer.Result{
		Count: tokenizer.EstimateTokens(text, j.cfg.Tokenizer.CharsPerToken), Source: tokenizer.Estimate,
	}
}

// prompt is the job's prompt of a completion, nil for a chat.
func (j *job) prompt() *openai.Prompt {
	if j.of.index < len(j.req.Prompts) {
		return &j.req.Prompts[j.of.index]
	}
	return nil
}

func ms(d time.Duration) float64 { return observe.Millis(d) }
