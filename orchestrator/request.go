package orchestrator

import (
	"cmp"
	"context"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/orchestrator/admin"
	"github.com/tandem-router/tandem/orchestrator/answers"
	"github.com/tandem-router/tandem/orchestrator/observe"
)

// request is one client's request from its first byte to its last. Its own goroutine owns it.
type request struct {
	*env
	*snapshot // loaded once; a reload does not change a running request
	origin
	w       *client
	id      string      // made by the router, because engines need unique ids
	kind    openai.Kind // of the API, whose words errors use; 0 if the API does not matter
	alias   string      // the alias that the client named instead of a model; "" for none
	outcome requestOutcome
}

// requestOutcome is the result of a request for counters, the log and its span.
type requestOutcome struct {
	mode   string          // how it was served: "split", "local" and so on; "none" if it was not
	result string          // the kind of its failure; "": ok
	status int             // status of its failure; the client may have got another before, see [client.status]
	rec    *observe.Record // record of its first prompt; nil if nothing was planned
}

// abandon cuts the connection of a client that has left. The client may have closed only its sending
// direction. If the handler returned, such a client would get an empty answer with status 200, or a stream
// would seem to be complete.
func (q *request) abandon() {
	if q.outcome.result == goneName {
		panic(http.ErrAbortHandler)
	}
}

// admit refuses requests before reading them: the router shuts down, there are too many requests, or the key
// is missing.
func (q *request) admit(inflight int64) *failure {
	cfg := q.cfg
	switch {
	case q.ending.Load() == draining:
		return refuse(kindDraining, site{phase: phaseAdmit})
	case cfg.Limits.InFlight > 0 && inflight > int64(cfg.Limits.InFlight):
		return refuse(kindTooMany, site{phase: phaseAdmit})
	case !q.authorised():
		return refuse(kindUnauthorised, site{phase: phaseAdmit})
	}
	return nil
}

// placed serves the request if there is a place for it, and shows the request meanwhile.
func (q *request) placed(
	ctx context.Context, serve func(ctx context.Context, q *request) *failure,
) *failure {
	q.enter()
	defer q.requests.Leave(q.seen)
	if f := q.places.take(ctx); f != nil {
		return f
	}
	defer q.places.leave()
	return serve(ctx, q)
}

// authorised looks up the client's key by the secret that the client shows.
func (q *request) authorised() bool {
	secret, found := admin.Bearer(q.r)
	if !found {
		secret = q.r.Header.Get("X-Api-Key") // Anthropic clients
	}
	if q.keys.Open() {
		q.tenant = tenantOf(secret)
		return true
	}
	if q.key = q.keys.Find(secret); q.key == nil {
		return false
	}
	q.tenant = q.key.Group
	return true
}

// enter adds the request to the running requests. Its API key has been read.
func (q *request) enter() {
	q.seen = q.requests.Enter(&observe.InFlight{
		ID: q.id, ClientID: q.clientID, Client: q.r.RemoteAddr, Path: q.path,
		Key: cmp.Or(q.keyName(), keyLabel(q.tenant)),
	}, q.start)
}

// fail records the outcome, logs it, counts it if the router itself refused the request, and tells the
// client.
func (q *request) fail(f *failure) {
	q.outcome.result, q.outcome.status = f.name(), f.reply.status
	q.traceFailure(f)
	if f.reply.status >= http.StatusInternalServerError {
		logFailure(q, f)
	}
	if f.owner() == ownerRouter && !q.w.begun {
		q.m.Requests.Refused.WithLabelValues(f.name()).Inc()
	}
	q.w.fail(f, q.kind)
}

// end counts the request.
func (q *request) end() {
	if q.outcome.result == "" {
		q.outcome.result = "ok"
	}
	q.hold.End(time.Now())
	q.m.Phases.Observe(observe.PhaseTotal, time.Since(q.start))
	q.count()
	q.endTrace()
}

// count counts the request by its outcome, and writes its line in the access log.
func (q *request) count() {
	q.m.Requests.Ended.WithLabelValues(q.path, q.servedModel(), q.outcome.mode, q.outcome.result).Inc()
	if q.alias != "" {
		q.m.Requests.Aliased.WithLabelValues(q.alias, q.servedModel(), q.outcome.result).Inc()
	}
	if q.key != nil {
		q.m.Requests.ByKey.WithLabelValues(q.key.Name, q.outcome.result).Inc()
	}
	if q.class != nil {
		q.m.Classes.Ended.WithLabelValues(q.class.Name, q.outcome.result).Inc()
	}
	if q.cfg.Log.Access {
		logAccess(q)
	}
}

// servedModel returns the model to which the request was sent; "" if it was sent to none. Texts of clients
// must not become labels.
func (q *request) servedModel() string {
	if q.outcome.rec == nil || q.outcome.rec.Decode == "" {
		return ""
	}
	return q.outcome.rec.Model
}

// newJob begins a job of the request, for the prompt with this index.
func (q *request) newJob(req *openai.Request, index int) *job {
	j := &job{
		env: q.env, snapshot: q.snapshot, origin: &q.origin, req: req, of: ofBatch{index: index},
	}
	id := q.id
	if req != nil && req.Batched {
		id += "-" + strconv.Itoa(index)
	}
	j.rec = observe.NewRecord(id, q.path, q.start, q.inForce)
	j.rec.Alias = q.alias
	j.rec.ClientID, j.rec.Key = q.clientID, q.keyName()
	j.rec.Session = q.session.label
	j.rec.Class = q.className()
	if q.outcome.rec == nil {
		q.outcome.rec = j.rec
	}
	if req != nil {
		if req.N > 1 {
			j.rec.Samples = req.N
		}
		j.rec.Model, j.rec.Streamed = req.Model, req.Stream
	}
	return j
}

// newID makes the id of a request: 16 hex digits, which contain no information.
func newID() string {
	const digits = "0123456789abcdef"
	v := rand.Uint64()
	var b [16]byte
	for i := range b {
		b[i] = digits[v&15]
		v >>= 4
	}
	return string(b[:])
}

// crashed answers a request whose handler panicked: with 500 if nothing has been sent, otherwise it cuts the
// connection. It must be deferred.
func (q *request) crashed() {
	v := recover()
	switch p, brought := v.(*panicked); {
	case v == nil:
		return
	case v == http.ErrAbortHandler:
		panic(v)
	case brought:
		v = p
	default:
		v = &panicked{v, debug.Stack()}
	}
	p := v.(*panicked)
	q.outcome.result, q.outcome.status = "panic", http.StatusInternalServerError
	q.log.Error("a request panicked, which is a bug of this router: please report it", "id", q.id, "path",
		q.path, "error", p.Error(), "stack", string(p.stack))
	if q.w.begun {
		panic(http.ErrAbortHandler)
	}
	q.fail(refuse(kindPanic, site{phase: phaseServe, err: p}))
}

// apart returns a new request with the content of q. It runs until ctx ends, and writes to the client to. It
// has its own outcome.
func (q *request) apart(ctx context.Context, to *answers.Recorder) *request {
	own := *q
	own.r, own.outcome = q.r.Clone(ctx), requestOutcome{mode: q.outcome.mode}
	own.w = &client{
		ResponseWriter: to, rc: *http.NewResponseController(to), limit: q.w.limit, shows: q.w.shows,
		count: q.w.count,
	}
	to.Streams = func() bool { return own.w.stream }
	return &own
}
