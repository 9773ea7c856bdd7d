package orchestrator

import (
	"context"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
)

// converse serves /v1/messages and /v1/responses. They are split like chats where both legs can carry the
// same ids; everything else goes whole to one replica, as it came.
func converse(kind openai.Kind) func(context.Context, *request) *failure {
	return func(ctx context.Context, q *request) *failure {
		req, f := q.parse(kind)
		if f != nil {
			return f
		}
		return cached(ctx, q, req.Model, req, (*request).reply)
	}
}

// reply answers a request of a conversation.
func (q *request) reply(ctx context.Context, req *openai.Request) *failure {
	if req.Unsplittable != "" {
		return pass(ctx, q,
			&passthrough{
				body: req.Raw, contentType: "application/json", model: req.Model, stream: req.Stream, acts: req.Acts,
			},
			req.Unsplittable)
	}
	return q.single(ctx, req)
}

// whyWhole says why the job cannot be split, "" when it can. It is asked when the prompt's ids have been
// looked for.
func (j *job) whyWhole() string {
	kind := j.req.Kind
	switch {
	case j.req.Unsplittable != "":
		return j.req.Unsplittable
	case kind == openai.Completions || kind == openai.Chat:
		return ""
	case !j.exact():
		return "no engine renders " + kind.Path() + " to token ids"
	case j.connect.Order() != connector.Sequential:
		// The id that names both ends is ignored on /v1/responses.
		return "the connector does not carry " + kind.Path()
	}
	for _, r := range j.fleet.Endpoints() {
		if r.Member.Role == replica.Decode && r.Member.Serves(j.req.Model) && !reuses(&r.Member.Facts, kind) {
			return "not every decode replica takes token ids on " + kind.Path()
		}
	}
	return ""
}

// reuses reports whether an engine takes the prompt's ids on the decode leg of a request of this kind.
func reuses(f *replica.Facts, kind openai.Kind) bool {
	switch kind {
	case openai.Chat:
		return f.ReuseIDs
	case openai.Messages:
		return f.ReuseOther.Messages
	case openai.Responses:
		return f.ReuseOther.Responses
	}
	return true
}

// api is the kind whose API a path belongs to, 0 where errors are in vLLM's own words.
func api(path string) openai.Kind {
	switch path {
	case openai.Messages.Path():
		return openai.Messages
	case openai.Responses.Path():
		return openai.Responses
	}
	return 0
}
