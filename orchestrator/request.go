package orchestrator

import (
	"context"
	"crypto/subtle"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/orchestrator/admin"
	"github.com/tandem-router/tandem/orchestrator/observe"
)

// request is one client's request from its first byte to its last. Its own goroutine owns it.
type request struct {
	*env
	*snapshot // loaded once; a reload does not reach a running request
	origin
	w       *client
	id      string      // of the router's own making: engines want it to be unique
	kind    openai.Kind // of the API, in whose words errors are; 0 where it does not matter
	outcome requestOutcome
}

// requestOutcome is what became of a request, for counters, the log and its span.
type requestOutcome struct {
	mode   string          // how it was served: "split", "local" and so on; "none" where it was not
	result string          // the kind of its failure, "" is ok
	status int             // of its failure; the client may have got another before, see [client.status]
	rec    *observe.Record // of its first prompt, nil where nothing was planned
}

// abandon cuts the connection of a client that has left. It may only have closed its own direction: a handler
// that returned would give it an empty answer with status 200, or end a stream as if it were whole.
func (q *request) abandon() {
	if q.outcome.result == goneName {
		panic(http.ErrAbortHandler)
	}
}

// admit refuses before anything has been read: shutting down, too many, or no key.
func (q *request) admit(inflight int64) *failure {
	cfg := q.cfg
	switch {
	case q.draining.Load():
		return refuse(kindDraining, site{phase: phaseAdmit})
	case cfg.Limits.InFlight > 0 && inflight > int64(cfg.Limits.InFlight):
		return refuse(kindTooMany, site{phase: phaseAdmit})
	case !q.authorised():
		return refuse(kindUnauthorised, site{phase: phaseAdmit})
	}
	return nil
}

// authorised compares the bearer token with every configured key, each in constant time.
func (q *request) authorised() bool {
	token, found := admin.Bearer(q.r)
	if !found {
		token = q.r.Header.Get("X-Api-Key") // Anthropic clients
	}
	q.tenant = tenantOf(token)
	if len(q.keys) == 0 {
		return true
	}
	ok := 0
	for i := range q.keys {
		ok |= subtle.ConstantTimeCompare([]byte(token), []byte(q.keys[i].Reveal()))
	}
	return ok == 1 && token != ""
}

// fail remembers the outcome, logs it, counts it where it is the router's own refusal, and tells the client.
func (q *request) fail(f *failure) {
	q.outcome.result, q.outcome.status = f.name(), f.answer.status
	q.traceFailure(f)
	if f.answer.status >= http.StatusInternalServerError {
		q.logFailure(f)
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
	q.m.Phases.Observe(observe.PhaseTotal, time.Since(q.start))
	q.count()
	q.endTrace()
}

// count counts the request by its outcome, and writes its line of the access log.
func (q *request) count() {
	q.m.Requests.Ended.WithLabelValues(q.path, q.servedModel(), q.outcome.mode, q.outcome.result).Inc()
	if q.cfg.Log.Access {
		q.logAccess()
	}
}

// servedModel is the model that the request was sent to, "" where it went to none: what clients make up is no
// label.
func (q *request) servedModel() string {
	if q.outcome.rec == nil || q.outcome.rec.Decode == "" {
		return ""
	}
	return q.outcome.rec.Model
}

// body reads the request's body within the limits of size and time.
func (q *request) body() ([]byte, *failure) {
	limit := int64(q.cfg.Limits.BodyBytes)
	if q.r.ContentLength > limit {
		return nil, q.tooLarge(limit)
	}
	// Not every test transport has deadlines.
	_ = q.w.rc.SetReadDeadline(time.Now().Add(q.cfg.Timeouts.ReadBody))
	body, err := readBody(q.r.Body, q.r.ContentLength, limit+1)
	_ = q.w.rc.SetReadDeadline(time.Time{})
	switch {
	case err != nil:
		return nil, refuse(kindBodyUnread, site{phase: phaseAdmit, err: err})
	case int64(len(body)) > limit:
		return nil, q.tooLarge(limit)
	}
	return body, nil
}

// firstRead is the memory that a body gets on the client's word.
const firstRead = 64 << 10

// readBody reads as many bytes as were announced, or at most as many where nothing was (-1). Memory grows
// with what has come: a client that announces much and sends little gets little.
func readBody(r io.Reader, announced, most int64) ([]byte, error) {
	if announced >= 0 {
		most = announced
	}
	body := make([]byte, 0, min(most, firstRead))
	for int64(len(body)) < most {
		if len(body) == cap(body) {
			body = append(make([]byte, 0, min(2*int64(cap(body)), most)), body...)
		}
		n, err := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case err == io.EOF && int64(len(body)) < announced:
			return body, io.ErrUnexpectedEOF
		case err == io.EOF:
			return body, nil
		case err != nil:
			return body, err
		}
	}
	return body, nil
}

func (q *request) tooLarge(limit int64) *failure {
	return refuse(kindBodyTooLarge, site{phase: phaseAdmit, words: "The request body is larger than " +
		strconv.FormatInt(limit, 10) + " bytes, the limit of this router (limits.body_bytes)."})
}

// single serves a request that is one prompt.
func (q *request) single(ctx context.Context, req *openai.Request) *failure {
	j := q.newJob(req, 0)
	f := j.serve(ctx, func(d *delivery) *failure {
		if !req.Stream {
			return q.w.whole(http.StatusOK, "application/json", d.current.whole, j.rec)
		}
		return d.stream(ctx, func(events []byte, n int) *failure { return q.w.events(events, n, j.rec) })
	})
	q.outcome.mode = j.rec.Mode
	return f
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
	j.rec.ClientID = q.clientID
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

// newID makes the id of a request: 16 hex digits, which name nothing inside.
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
