package orchestrator

import (
	"cmp"
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/tandem-router/tandem/internal/openai"
)

// front serves the public listener.
type front struct {
	*env
	snap *atomic.Pointer[snapshot]
}

// routes lists the OpenAI-style paths, models and liveness. ready serves /readyz. No other path exists in any
// spelling: engines' dev and admin paths are out of reach.
//
// Long: a row a path.
func (t *front) routes(ready http.HandlerFunc) http.Handler {
	mux := chi.NewRouter()
	mux.NotFound(t.absent(refuse(kindUnknownPath, site{phase: phaseAdmit})))
	mux.MethodNotAllowed(
		t.absent(refuse(kindUnknownMethod, site{phase: phaseAdmit})),
	)
	for path, h := range t.alive() {
		mux.Get(path, h)
	}
	mux.Get("/readyz", ready)

	usual := map[string]http.HandlerFunc{}
	for _, kind := range usualKinds {
		usual[kind.Path()] = t.handle(kind.Path(), generate(kind))
		mux.Post(kind.Path(), usual[kind.Path()])
	}

	mux.Post("/v1/messages", t.handle("/v1/messages", converse(openai.Messages)))
	mux.Post("/v1/responses", t.handle("/v1/responses", converse(openai.Responses)))

	for _, path := range generatingPaths {
		mux.Post(path, t.handle(path, proxyWhole))
	}
	for _, path := range pooling {
		mux.Post(path, t.handle(path, encode))
	}
	for _, path := range asking {
		mux.Post(path, t.handle(path, anyEngine))
	}
	mux.Get("/v1/models", t.handle("/v1/models", listModels))
	mux.Get(modelPath+"*", t.handle(modelPath+"{model}", oneModel))
	mux.Get("/v1/responses/{id}", t.handle("/v1/responses/{id}", stored))
	mux.Post("/v1/responses/{id}/cancel", t.handle("/v1/responses/{id}/cancel", stored))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to := t.toClient(w, r)
		if t.snap.Load().preflight(to, r) {
			return
		}
		if serve := usual[r.URL.Path]; serve != nil && r.Method == http.MethodPost && r.URL.RawPath == "" {
			serve(to, r)
			return
		}
		mux.ServeHTTP(to, r)
	})
}

// handle adds the common parts of every request to a handler of the front: identity, limits, the drain check,
// a span, metrics.
func (t *front) handle(
	path string, serve func(ctx context.Context, q *request) *failure,
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q := &request{
			env: t.env, snapshot: t.snap.Load(), w: t.toClient(w, r), id: newID(), kind: api(path),
			origin: origin{
				r: r, path: path, start: time.Now(), clientID: clientID(r.Header), session: sessionOf(r.Header),
			},
			outcome: requestOutcome{mode: "none"},
		}
		n := t.inflight.Add(1)
		t.m.Requests.InFlight.Inc()
		q.w.head("X-Request-Id", idOf, cmp.Or(q.clientID, q.id))
		ctx := q.trace(r.Context()) // ends when the client leaves, the handler returns or the router stops
		defer func() {
			t.inflight.Add(-1)
			t.m.Requests.InFlight.Dec()
			q.end()
		}()
		defer q.crashed()
		f := q.admit(n)
		if f == nil {
			f = q.placed(ctx, serve)
		}
		if f != nil {
			q.fail(f)
		}
		q.abandon()
	}
}

// absent answers requests for a path or method that does not exist, in vLLM's words. It counts and logs them
// like others. It asks for no key, since there is nothing to protect.
func (t *front) absent(f *failure) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q := &request{
			env: t.env, snapshot: t.snap.Load(), w: t.toClient(w, r), id: newID(),
			origin:  origin{r: r, path: otherPath, start: time.Now(), clientID: clientID(r.Header)},
			outcome: requestOutcome{mode: "none", result: f.name(), status: f.reply.status},
		}
		q.w.head("X-Request-Id", idOf, cmp.Or(q.clientID, q.id))
		writeJSON(q.w, f.reply.status, `{"detail":"`+http.StatusText(f.reply.status)+`"}`)
		q.count()
	}
}

// toClient adds time limits to the writes to w.
func (t *front) toClient(w http.ResponseWriter, r *http.Request) *client {
	if c, ok := w.(*client); ok {
		return c
	}
	cfg := t.snap.Load().cfg
	if t.ending.Load() >= unready { // the client's next connection goes to another router
		w.Header().Set("Connection", "close")
	}
	return &client{
		ResponseWriter: w, rc: *http.NewResponseController(w), limit: cfg.Timeouts.ClientWrite,
		timed: r.ProtoMajor >= 2, shows: &cfg.Response, count: t.m.Requests.Events,
	}
}

// usualKinds are the APIs of nearly all requests. Their paths need no search.
var usualKinds = []openai.Kind{openai.Chat, openai.Completions}

// usualPaths returns the paths of usualKinds.
func usualPaths() (paths []string) {
	for _, kind := range usualKinds {
		paths = append(paths, kind.Path())
	}
	return paths
}

// generatingPaths are the paths that take a prompt and generate tokens. Their requests are passed whole to
// one decode replica, with a booking there.
var generatingPaths = []string{
	"/v1/chat/completions/batch", "/inference/v1/generate",
	"/v1/audio/transcriptions", "/v1/audio/translations", "/v1/decisions",
}

// pooling are the paths that produce vectors and scores. Their requests are passed on in the same way.
var pooling = []string{
	"/v1/embeddings", "/pooling", "/classify", "/score", "/v1/score", "/rerank", "/v1/rerank", "/v2/rerank",
}

// asking are the paths that any engine answers without a KV block.
var asking = []string{
	"/tokenize", "/detokenize", "/v1/messages/count_tokens",
	"/v1/chat/completions/render", "/v1/completions/render", "/v1/responses/render", "/v1/messages/render",
	"/v1/chat/completions/derender", "/v1/completions/derender",
}

// alive returns, by path, the handlers that report whether the process lives. A draining process is alive but
// not healthy: nothing should kill it before its streams end.
func (t *front) alive() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"/livez": func(w http.ResponseWriter, _ *http.Request) {
			writeJSON(w, http.StatusOK, `{"status":"ok"}`)
		},
		"/healthz": t.healthz, "/health": t.healthz,
	}
}

func (t *front) healthz(w http.ResponseWriter, _ *http.Request) {
	if t.ending.Load() == draining {
		writeJSON(w, http.StatusServiceUnavailable, `{"status":"draining"}`)
		return
	}
	writeJSON(w, http.StatusOK, `{"status":"ok"}`)
}

func writeJSON(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}

// api returns the kind of a path's API; 0 if errors use vLLM's own words.
func api(path string) openai.Kind {
	switch path {
	case openai.Messages.Path():
		return openai.Messages
	case openai.Responses.Path():
		return openai.Responses
	}
	return 0
}
