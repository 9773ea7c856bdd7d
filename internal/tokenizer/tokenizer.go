// Package tokenizer gets the token ids of a prompt from an engine, once: from render, else from /tokenize,
// else it estimates how many there are.
//
// Answers are kept under the fields that determine the prompt, and callers that ask for the same prompt at
// the same time share one call. No prompt appears in an error.
package tokenizer

import (
	"cmp"
	"context"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

// Post sends one JSON body to the engine and returns its whole answer. It is called on the goroutine of a
// caller of the Resolver and must honour ctx.
type Post func(ctx context.Context, path string, body []byte) (status int, reply []byte, err error)

// Options of a Resolver. What a configuration sets is said in full; the rest has a constant that tests
// change.
type Options struct {
	RenderTimeout   time.Duration // of one question to a render endpoint; above 0
	TokenizeTimeout time.Duration // of one to /tokenize; above 0
	CacheBytes      int64         // 0: no cache
	CharsPerToken   float64       // of the estimate, bytes of the raw prompt; above 0
	// How long the ids of a chat are remembered. The chat's template may name the day. 0: not at all.
	ChatTTL time.Duration

	maxTokens int           // ids of longer prompts are not kept, only counted
	remember  time.Duration // how long an endpoint that an engine does not have is not asked for again
}

const (
	maxTokens = 2 << 20
	remember  = 5 * time.Minute
)

// check panics where o leaves out what nothing can be asked or estimated without.
func (o *Options) check() {
	if o.RenderTimeout <= 0 || o.TokenizeTimeout <= 0 || !(o.CharsPerToken > 0) {
		panic("tokenizer: options without a timeout or CharsPerToken")
	}
}

// Resolver finds token ids. It starts no goroutines and is safe for concurrent use.
type Resolver struct {
	o       Options
	cache   *cache
	calls   calls
	missing missing
}

// New makes a Resolver.
func New(o Options) *Resolver {
	o.check()
	o.maxTokens, o.remember = cmp.Or(o.maxTokens, maxTokens), cmp.Or(o.remember, remember)
	return &Resolver{
		o: o, cache: newCache(o.CacheBytes), calls: calls{m: map[key]*call{}},
		missing: missing{until: map[endpoint]time.Time{}},
	}
}

// Via is the engine to ask.
type Via struct {
	// Names the engine, so that endpoints that it lacks are remembered, and its answers can be forgotten.
	Key     string
	Release replica.Release // of the engine; ids are remembered and shared among engines of one release
	Post    Post
	Render  bool // whether its render endpoints are worth a try
}

// Source says where a Result came from.
type Source uint8

// The sources, best first.
const (
	Client Source = iota + 1
	Cache
	Render
	Tokenize
	Estimate
)

func (s Source) String() string {
	return [...]string{"none", "client", "cache", "render", "tokenize", "estimate"}[min(s, Estimate)]
}

// Result holds the tokens of a prompt. IDs are shared between callers and must not be changed.
type Result struct {
	IDs    []uint32 // nil when unknown
	Count  int      // len(IDs), or the estimate
	Source Source
	Of     replica.Release // the release that the ids belong to
	// An engine of release Of would make exactly these ids of the request, so legs to such an engine may carry
	// the ids.
	Exact bool
	// *Rejected when the engine would refuse the request anyway, or the caller's context error; the rest is then
	// an estimate.
	Err error
}

// Rejected is an engine's refusal of the request itself.
type Rejected struct {
	Status int
	Body   []byte // for the client; may quote its prompt
}

func (e *Rejected) Error() string { return "engine refuses the prompt" }

// Completion resolves one text prompt of a completion. promptRaw is the JSON string, body the client's
// sanitised body.
func (r *Resolver) Completion(ctx context.Context, via Via, model string, promptRaw, body []byte) Result {
	return r.resolve(ctx, via, completionQuestion(via.Release, model, promptRaw, body))
}

// Chat resolves the prompt of a chat of text; body is the client's sanitised body.
func (r *Resolver) Chat(ctx context.Context, via Via, body []byte) Result {
	return r.resolve(ctx, via, chatQuestion(via.Release, body))
}

// Conversation resolves the prompt of a request of text to path, which is /v1/messages or /v1/responses; body
// is the client's sanitised body. Without render it is an estimate. A refusal is the renderer's, in its
// words: the API itself may have others.
func (r *Resolver) Conversation(ctx context.Context, via Via, path string, body []byte) Result {
	return r.resolve(ctx, via, conversationQuestion(via.Release, path, body))
}

// resolve looks into the cache, joins a call that is under way, or asks. Only ids are shared. If the ids
// depend on more than the key, the caller asks alone. A refusal may be for a field that is not in the key,
// so a caller that waited and got a refusal asks alone. A caller also asks itself if the call that it waited
// for brought nothing because its leader left.
func (r *Resolver) resolve(ctx context.Context, via Via, q question) Result {
	if !q.keep {
		return r.ask(ctx, via, q)
	}
	for {
		if kept, ok := r.cache.get(q.key, time.Now()); ok && (kept.Exact || !r.canRender(via, q)) {
			kept.Source = Cache
			return kept
		}
		c, leader := r.calls.join(q.key)
		if leader {
			return r.lead(ctx, via, q, c)
		}
		select {
		case <-c.done:
			if c.result.Err != nil && !c.left {
				return r.askAndKeep(ctx, via, q)
			}
			if !c.left {
				return c.result
			}
		case <-ctx.Done():
			return r.estimate(q, ctx.Err())
		}
	}
}

// lead asks for all callers that wait.
func (r *Resolver) lead(ctx context.Context, via Via, q question, c *call) Result {
	c.left = true // also when ask panics
	defer r.calls.end(q.key, c)
	c.result = r.askAndKeep(ctx, via, q)
	c.left = ctx.Err() != nil && c.result.Source == Estimate
	return c.result
}

// askAndKeep asks, and remembers the ids; the cache takes nothing else. What was asked of an engine that was
// forgotten meanwhile is not remembered.
func (r *Resolver) askAndKeep(ctx context.Context, via Via, q question) Result {
	forgotten := r.cache.forgotten()
	result := r.ask(ctx, via, q)
	e := entry{key: q.key, result: result, engine: via.Key}
	if q.templated {
		if r.o.ChatTTL <= 0 {
			return result
		}
		e.until = time.Now().Add(r.o.ChatTTL)
	}
	r.cache.put(&e, forgotten)
	return result
}

// Forget drops everything that the engine named key has answered: another process runs behind the name now,
// or none. Callers that wait for the engine now still get its answers. These answers are neither remembered
// nor shared with later callers.
func (r *Resolver) Forget(key string) {
	r.cache.forget(key)
	r.calls.forget()
	r.missing.forget(key)
}

func (r *Resolver) canRender(via Via, q question) bool {
	return via.Render && !r.missing.is(endpoint{via.Key, q.renderPath}, time.Now())
}

// estimate guesses from the prompt's length.
func (r *Resolver) estimate(q question, err error) Result {
	return Result{Count: max(1, int(float64(q.size)/r.o.CharsPerToken)), Source: Estimate, Err: err}
}
