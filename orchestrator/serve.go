package orchestrator

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/tandem-router/tandem/internal/openai"
)

// Front returns the handler of the public listener: the OpenAI-style paths, models and liveness, and nothing
// else. What is not listed here does not exist, however it is spelled: engines' dev and admin paths are out
// of reach by default.
//
// Long: a row a path.
func (o *Orchestrator) Front() http.Handler {
	mux := chi.NewRouter()
	mux.NotFound(o.absent(refuse(kindUnknownPath, site{phase: "admit"})))
	mux.MethodNotAllowed(
		o.absent(refuse(kindUnknownMethod, site{phase: "admit"})),
	)
	mux.Get("/healthz", o.healthz)
	mux.Get("/health", o.healthz)
	mux.Get("/readyz", o.admin.FrontReady)

	usual := map[string]http.HandlerFunc{}
	for _, kind := range usualKinds {
		usual[kind.Path()] = o.handle(kind.Path(), o.generate(kind))
		mux.Post(kind.Path(), usual[kind.Path()])
	}

	mux.Post("/v1/messages", o.handle("/v1/messages", o.converse(openai.Messages)))
	mux.Post("/v1/responses", o.handle("/v1/responses", o.converse(openai.Responses)))

	for _, path := range generating {
		mux.Post(path, o.handle(path, o.proxyWhole))
	}
	for _, path := range pooling {
		mux.Post(path, o.handle(path, o.encode))
	}
	for _, path := range asking {
		mux.Post(path, o.handle(path, o.anyEngine))
	}
	mux.Get("/v1/models", o.handle("/v1/models", o.listModels))
	mux.Get(modelPath+"*", o.handle(modelPath+"{model}", o.model))
	mux.Get("/v1/responses/{id}", o.handle("/v1/responses/{id}", o.stored))
	mux.Post("/v1/responses/{id}/cancel", o.handle("/v1/responses/{id}/cancel", o.stored))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if serve := usual[r.URL.Path]; serve != nil && r.Method == http.MethodPost && r.URL.RawPath == "" {
			serve(o.toClient(w, r), r)
			return
		}
		mux.ServeHTTP(o.toClient(w, r), r)
	})
}

// otherPath is the path label of requests for what does not exist: what clients make up is no label.
const otherPath = "other"

// absent answers requests for a path or method that does not exist, in vLLM's words, and counts and logs them
// as any other. No key is asked for, since there is nothing to protect.
func (o *Orchestrator) absent(f *failure) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q := &request{
			o: o, snap: o.snap.Load(), w: o.toClient(w, r), r: r, id: newID(), path: otherPath, start: time.Now(),
			outcome:  requestOutcome{mode: "none", result: f.name(), status: f.answer.status},
			clientID: clientID(r.Header),
		}
		q.w.head("X-Request-Id", idOf, cmp.Or(q.clientID, q.id))
		plain(q.w, f.answer.status, `{"detail":"`+http.StatusText(f.answer.status)+`"}`)
		q.count()
	}
}

// usualKinds are the APIs of nearly all requests, whose paths need no search.
var usualKinds = []openai.Kind{openai.Chat, openai.Completions}

// usualPaths are theirs.
func usualPaths() (paths []string) {
	for _, kind := range usualKinds {
		paths = append(paths, kind.Path())
	}
	return paths
}

// generating are the paths that take a prompt and produce tokens: passed through whole to one decode replica,
// with room booked there.
var generating = []string{
	"/v1/chat/completions/batch", "/inference/v1/generate",
	"/v1/audio/transcriptions", "/v1/audio/translations", "/v1/decisions",
}

// pooling are the paths that produce vectors and scores: passed through in the same way.
var pooling = []string{
	"/v1/embeddings", "/pooling", "/classify", "/score", "/v1/score", "/rerank", "/v1/rerank", "/v2/rerank",
}

// asking are the paths that any engine answers without a KV block.
var asking = []string{
	"/tokenize", "/detokenize", "/v1/messages/count_tokens",
	"/v1/chat/completions/render", "/v1/completions/render", "/v1/responses/render", "/v1/messages/render",
	"/v1/chat/completions/derender", "/v1/completions/derender",
}

// generate serves the paths that can be split.
func (o *Orchestrator) generate(kind openai.Kind) func(context.Context, *request) *failure {
	return func(ctx context.Context, q *request) *failure {
		req, f := q.parse(kind)
		if f != nil {
			return f
		}
		return cached(ctx, q, req.Model, req, (*request).complete)
	}
}

// complete answers a chat or a completion.
func (q *request) complete(ctx context.Context, req *openai.Request) *failure {
	if req.Batched && req.Unsplittable == "" {
		return q.batch(ctx, req)
	}
	return q.single(ctx, req)
}

// parse reads the body of a request that can be split.
func (q *request) parse(kind openai.Kind) (*openai.Request, *failure) {
	raw, f := q.body()
	if f != nil {
		return nil, f
	}
	req, err := openai.Parse(kind, raw, q.limits())
	if err != nil {
		return nil, badRequest(err)
	}
	if req.Model, f = q.modelOr(req.Model); f != nil {
		return nil, f
	}
	return req, nil
}

func (q *request) limits() openai.Limits {
	l := q.snap.cfg.Limits
	return openai.Limits{PromptTokens: l.MaxPromptTokens, Prompts: l.BatchPrompts, Samples: l.Samples}
}

func (o *Orchestrator) healthz(w http.ResponseWriter, _ *http.Request) {
	if o.draining.Load() {
		plain(w, http.StatusServiceUnavailable, `{"status":"draining"}`)
		return
	}
	plain(w, http.StatusOK, `{"status":"ok"}`)
}

func plain(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}
