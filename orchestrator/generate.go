package orchestrator

import (
	"context"
	"net/http"

	"github.com/tandem-router/tandem/internal/openai"
)

// generate serves the paths whose requests can be split.
func generate(kind openai.Kind) func(context.Context, *request) *failure {
	return func(ctx context.Context, q *request) *failure {
		req, f := q.parse(kind)
		if f != nil {
			return f
		}
		return throughCache(ctx, q, req.Model, req, completeOn)
	}
}

// completeOn answers a chat or a completion.
func completeOn(ctx context.Context, q *request, req *openai.Request) *failure {
	if req.Batched && req.Unsplittable == "" {
		return q.batch(ctx, req)
	}
	return single(ctx, q, req)
}

// converse serves /v1/messages and /v1/responses. Requests are split like chats if both legs can carry the
// same ids. All others go whole to one replica, unchanged.
func converse(kind openai.Kind) func(context.Context, *request) *failure {
	return func(ctx context.Context, q *request) *failure {
		req, f := q.parse(kind)
		if f != nil {
			return f
		}
		return throughCache(ctx, q, req.Model, req, converseOn)
	}
}

// converseOn answers a request of a conversation.
func converseOn(ctx context.Context, q *request, req *openai.Request) *failure {
	if req.Unsplittable != "" {
		return passOn(ctx, q,
			&passthrough{
				body: req.Raw, contentType: "application/json", model: req.Model, stream: req.Stream, acts: req.Acts,
			},
			req.Unsplittable)
	}
	return single(ctx, q, req)
}

// single serves a request with one prompt.
func single(ctx context.Context, q *request, req *openai.Request) *failure {
	j := q.newJob(req, 0)
	f := serveJob(ctx, j, func(d *delivery) *failure {
		if !req.Stream {
			return q.w.whole(http.StatusOK, "application/json", d.current.whole, j.rec)
		}
		return d.stream(ctx, func(events []byte, n int) *failure { return q.w.events(events, n, j.rec) })
	})
	q.outcome.mode = j.rec.Mode
	return f
}
