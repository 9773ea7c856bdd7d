package orchestrator

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/tandem-router/tandem/internal/keys"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/tokenizer"
	"github.com/tandem-router/tandem/orchestrator/observe"
)

// denied refuses a model that the client's key may not use, in the words of OpenAI's API. The status is that
// of an unknown model.
func denied(model string) *failure {
	return refuse(kindModelDenied, site{
		phase: phaseAdmit, words: "The model `" + model + "` does not exist or you do not have access to it.",
	})
}

// askOf returns the expected use of the limits of the request's key.
func askOf(q *request, req *openai.Request) keys.Ask {
	prompt := 0
	for i := range req.Prompts {
		prompt += len(req.Prompts[i].IDs)
	}
	rough := prompt == 0
	if rough {
		prompt = tokenizer.EstimateTokens(req.Raw, q.cfg.Tokenizer.CharsPerToken)
	}
	return keys.Ask{
		Prompt: prompt, Rough: rough, MaxTokens: req.MaxTokens, Answers: max(req.N, 1) * max(req.InBatch, 1),
		Expected: q.cfg.Scoring.ExpectedOutput,
	}
}

// askOfPassed is askOf for a request that is passed on whole.
func askOfPassed(q *request, p *passthrough) (ask keys.Ask) {
	if slices.Contains(asking, q.path) {
		return ask
	}
	ask.Prompt = p.tokens(q.cfg.Tokenizer.CharsPerToken)
	if !slices.Contains(pooling, q.path) {
		ask.Answers, ask.Expected = max(p.samples, 1), q.cfg.Scoring.ExpectedOutput
	}
	return ask
}

// longestWait is the longest wait that is reported to a client. OpenAI's client for Node (still in version
// 6.0) tries again within a second if the wait is a minute or more. The usage of a key counts for at most
// 60.5 s: a client that returns too early gets the remaining wait.
const longestWait = 59 * time.Second

// reserve admits the request if the limits of its key allow it, and tells the client how much is left. ask is
// called only for a key with limits.
func reserve(q *request, ask func() keys.Ask) *failure {
	if q.key == nil || q.key.Account == nil {
		return nil
	}
	hold, s := q.key.Account.Reserve(q.key.Limits, ask(), time.Now())
	tellStanding(q.w.Header(), s)
	q.hold = hold
	return overLimit(q.env, &q.origin, s.Over, s.Wait)
}

// recount corrects what the job's request has reserved, after the tokens of its prompt have been counted. A
// batch keeps the estimate.
func recount(j *job) *failure {
	if j.hold == nil || j.ids == nil || j.req.Batched {
		return nil
	}
	over, wait := j.hold.Count(j.count, time.Now())
	return overLimit(j.env, j.origin, over, wait)
}

// overLimit refuses a request that exceeds a limit of its key.
func overLimit(e *env, o *origin, over keys.Limit, wait time.Duration) *failure {
	if over == keys.NoLimit {
		return nil
	}
	e.m.Requests.Recent.Refuse(o.key.Name, over, time.Now())
	return refuse(kindOverLimit, site{
		phase: phaseAdmit, retryAfter: min(wait, longestWait),
		words: "Rate limit reached for your API key: " + string(over) + ". Try again later.",
	})
}

// The header fields that OpenAI clients read: a limit, the part that is left, and the time until all is left.
var (
	aboutRequests = [...]string{
		"X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests",
	}
	aboutTokens = [...]string{
		"X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens",
	}
)

// tellStanding writes the header fields of a key with limits, with few pieces of memory.
func tellStanding(h http.Header, s keys.Standing) {
	tell := func(names *[3]string, limit, left int, reset time.Duration) {
		if limit == 0 {
			return
		}
		values := []string{strconv.Itoa(limit), strconv.Itoa(left), reset.Round(time.Millisecond).String()}
		for i, name := range names {
			h[name] = values[i : i+1 : i+1]
		}
	}
	tell(&aboutRequests, s.Limits.Requests, s.Requests, s.RequestsReset)
	tell(&aboutTokens, s.Limits.Tokens, s.Tokens, s.TokensReset)
}

// charge books the work of engines for the job on the client's key, once. a is the newest answer of an
// engine; nil for none.
func charge(j *job, a *answer) {
	if j.key == nil {
		return
	}
	r := j.rec
	j.hold.Use(r.Prompt, r.Output, max(j.plan.Sequences, 1), time.Now())
	j.m.Requests.Charge(keys.Used{
		Key: j.key.Name, Model: r.Model, Requests: 1, Prompt: int64(r.Prompt), Cached: int64(cachedOf(r, a)),
		Generated: int64(r.Output),
	})
}

// cachedOf is how many tokens of a prompt were cached, as the client is told. The record does not know it of
// several samples, nor of an answer whose engine died before it said so. Then the newest answer says it.
func cachedOf(r *observe.Record, a *answer) int {
	cached := r.Delivered
	if cached < 0 && a != nil {
		if cached = a.usage.cached.Found; cached < 0 {
			cached = a.usage.reportedCached
		}
	}
	return min(max(cached, 0), r.Prompt)
}
