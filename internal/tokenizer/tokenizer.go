// Package tokenizer gets the token ids of a prompt from an engine, once.
package tokenizer

import (
	"context"
	"time"
)

// Post sends one JSON body to the engine and returns its whole answer. It is called on the goroutine of a caller of the Resolver and must honour ctx.
type Post func(ctx context.Context, path string, body []byte) (status int, reply []byte, err error)

// Options of a Resolver; a zero field takes its default.
type Options struct {
	RenderTimeout   time.Duration    // default 5 s
	TokenizeTimeout time.Duration    // default 5 s
	CacheBytes      int64            // default 64 MiB; negative for no cache
	CharsPerToken   float64          // of the estimate, default 4
	MaxTokens       int              // ids of longer prompts are not kept, default 2 Mi
	Remember        time.Duration    // how long an endpoint that an engine does not have is not asked for again, default 5 min
	Now             func() time.Time // default time.Now
}

// Resolver finds token ids. It is safe for concurrent use.
type Resolver struct{}

// New makes a Resolver.
func New(o Options) *Resolver { return &Resolver{} }

// Via is the engine to ask.
type Via struct {
	Key    string // names the engine, so that what it does not have is remembered
	Post   Post
	Render bool // whether its render endpoints are worth a try
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

// Result is what is known of a prompt's tokens. IDs are shared between callers and must not be changed.
type Result struct {
	IDs    []uint32 // nil when unknown
	Count  int      // len(IDs), or the estimate
	Source Source
	Exact  bool  // the ids are what the engine itself would make of the request, so the legs may carry them
	Err    error // *Rejected when the engine would refuse the request anyway, or the caller's context error; the rest is then an estimate
}

// Rejected is an engine's refusal of the request itself.
type Rejected struct {
	Status int
	Body   []byte // for the client; may quote its prompt
}

func (e *Rejected) Error() string { return "engine refuses the prompt" }

// Completion resolves one text prompt of a completion. promptRaw is the JSON string, body the client's sanitised body.
func (r *Resolver) Completion(ctx context.Context, via Via, model string, promptRaw, body []byte) Result {
	return Result{}
}

// Chat resolves the prompt of a chat; body is the client's sanitised body.
func (r *Resolver) Chat(ctx context.Context, via Via, body []byte) Result { return Result{} }
