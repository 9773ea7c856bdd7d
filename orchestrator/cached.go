package orchestrator

import (
	"context"
	"errors"

	"github.com/tandem-router/tandem/orchestrator/answers"
)

// throughCache serves a request for a model from the answer cache if there is a cache, or else by do.
func throughCache[A answers.Repeatable](
	ctx context.Context, q *request, model string, what A, do func(context.Context, *request, A) *failure,
) *failure {
	cache := q.answers
	if cache == nil {
		return do(ctx, q, what)
	}
	out, err := cache.Respond(ctx, &answers.Asked{
		Config: &q.cfg.AnswerCache, Path: q.path, Query: q.r.URL.RawQuery, Header: q.r.Header, Model: model,
		Readers: q.readers(),
		What:    what, To: q.w,
		Answer: func(ctx context.Context) error { return asError(do(ctx, q, what)) },
		Apart: func(ctx context.Context, to *answers.Recorder) answers.Computation {
			own := q.apart(ctx, to)
			return func() (out answers.Outcome, err error) {
				defer func() { out = answers.Outcome{Mode: own.outcome.mode, Decided: own.outcome.rec} }()
				var broke crash
				defer broke.keep(&err)
				return out, asError(do(ctx, own, what))
			}
		},
	})
	if out.Mode != "" {
		q.outcome.mode = out.Mode
	}
	if out.Decided != nil {
		q.outcome.rec = out.Decided
	}
	return cacheFailure(ctx, out.Led, err)
}

// asError returns f as an error; nil for no failure.
func asError(f *failure) error {
	if f == nil {
		return nil
	}
	return f
}

// cacheFailure returns the failure of a request that used the answer cache. led says that this request
// started the computation of the answer. Then a panic of the computation continues here.
func cacheFailure(ctx context.Context, led bool, err error) *failure {
	var broke *panicked
	var unwritten *answers.WriteError
	f, failed := errors.AsType[*failure](err)
	switch {
	case err == nil:
		return nil
	case led && errors.As(err, &broke):
		panic(broke)
	case failed:
		return f
	case errors.Is(err, answers.ErrLeft):
		return goneFailure(ctx, site{phase: phaseStream})
	case errors.As(err, &unwritten):
		return lost(unwritten.Err)
	}
	return refuse(kindPanic, site{phase: phaseStream})
}
