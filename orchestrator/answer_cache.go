package orchestrator

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/tandem-router/tandem/internal/answercache"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/openai"
)

// answers is the answer cache in force: what was answered is given to those who ask the same again, and those
// who ask the same at once get one computation. A router without one has nil, and that costs nothing.
//
// Every computation runs on a goroutine of its own, as a request of its own whose client is the flight: see
// [answers.compute]. So it goes on when the client leaves that asked first, as long as another listens.
type answers struct {
	o       *Orchestrator
	memory  *answercache.Memory
	flights *answercache.Flights
	shared  shared      // with other routers; nil: nothing is
	trust   *tls.Config // of the shared store; nil: plain
}

// repeatable is what a request asks, as far as the cache has to know it.
type repeatable interface {
	// Repeatable returns what the answer depends on, or why another answer may be as right.
	Repeatable(rule openai.Repeat) (canonical []byte, why string)
	// Finished reports whether a good answer is all of it.
	Finished(answer []byte) bool
}

// compute is how a request is answered without the cache.
type compute func(q *request, ctx context.Context) *failure

// How a request came to its answer.
const (
	cacheHit    = "hit"    // it was there
	cacheJoined = "joined" // another request was getting it
	cacheMiss   = "miss"
	cacheBypass = "bypass" // it is not for the cache
)

// cached serves a request to a model from the answer cache, where that is on, or else by do.
func cached[A repeatable](
	ctx context.Context, q *request, model string, what A, do func(*request, context.Context, A) *failure,
) *failure {
	if q.snap.answers == nil {
		return do(q, ctx, what)
	}
	return q.snap.answers.serve(ctx, &cacheRequest{
		q: q, model: model, what: what, cfg: &q.snap.cfg.AnswerCache, wish: cacheControlOf(q.r.Header),
		do: func(q *request, ctx context.Context) *failure { return do(q, ctx, what) },
	})
}

// cacheRequest is a request to the cache.
type cacheRequest struct {
	q     *request
	model string // as it is asked for
	what  repeatable
	do    compute
	cfg   *config.AnswerCache
	of    answercache.Model // which that is
	key   answercache.Key
	wish  cacheControl
	// Of the computation, for who leads it.
	flight *answercache.Flight
}

func (c *answers) serve(ctx context.Context, a *cacheRequest) *failure {
	question, why := a.question()
	if why != "" {
		c.o.m.Answers.Bypassed.WithLabelValues(why).Inc()
		a.note(cacheBypass)
		return a.do(a.q, ctx)
	}
	a.of, a.key = question.Model, question.Key()
	if c.give(a) {
		return nil
	}
	l, leads := c.join(a)
	if leads {
		if !a.wish.anew && c.give(a) { // it was stored between the look and the flight
			l.Flight().Done(nil, errKept)
			return nil
		}
		c.lead(ctx, a, l.Flight())
	}
	defer func() { l.Leave(context.Cause(ctx)) }()
	return c.listen(ctx, a, l, leads)
}

// lead sees that a flight gets its answer: what routers share, or a computation. Nobody would wait for it to
// begin if this failed.
func (c *answers) lead(ctx context.Context, a *cacheRequest, f *answercache.Flight) {
	led := false
	defer func() {
		if !led {
			f.Done(nil, errNotLed)
		}
	}()
	if !c.giveShared(ctx, a, f) {
		a.note(cacheMiss)
		c.start(ctx, a, f)
	}
	led = true
}

// note tells the client and the counters how the request comes to its answer.
func (a *cacheRequest) note(how string) {
	a.q.o.m.Answers.Requests.WithLabelValues(how).Inc()
	say := map[string]string{cacheHit: "HIT", cacheJoined: "HIT", cacheMiss: "MISS", cacheBypass: "BYPASS"}[how]
	a.q.w.Header().Set("X-Cache", say)
	if how == cacheHit || how == cacheJoined {
		a.q.outcome.mode = "cached"
	}
}

// give answers with what is kept, if something is that may be given out.
func (c *answers) give(a *cacheRequest) bool {
	now := time.Now()
	if a.wish.anew {
		return false
	}
	kept := c.memory.Get(a.key, now)
	if kept == nil || !a.may(kept, now) {
		return false
	}
	a.note(cacheHit)
	a.q.w.Header().Set("Age", strconv.Itoa(int(kept.Age(now).Seconds())))
	if kept.Stream {
		a.lost(a.q.w.events(kept.Body, kept.Events, nil))
	} else {
		a.lost(a.q.w.whole(http.StatusOK, kept.ContentType, kept.Body, nil))
	}
	return true
}

// may reports whether an answer may be given out.
func (a *cacheRequest) may(kept *answercache.Answer, now time.Time) bool {
	return kept.Age(now) <= min(a.cfg.TTL, a.wish.maxAge) &&
		(a.cfg.OutliveEngines || a.q.o.stand(kept.Makers)) && a.q.o.hadAdapter(kept.Makers, a.model, kept.Made)
}

// tooOld reports whether the answer that another request has found is older than this one wants it.
func (a *cacheRequest) tooOld(head answercache.Head) bool {
	return !head.Made.IsZero() && time.Since(head.Made) > a.wish.maxAge
}

// lost notes that the client stopped reading.
func (a *cacheRequest) lost(f *failure) {
	if f != nil {
		a.q.fail(f)
	}
}

// join finds the computation of the answer that is under way, or begins one.
func (c *answers) join(a *cacheRequest) (l *answercache.Listener, leads bool) {
	limit := int(a.cfg.AnswerBytes)
	if a.wish.anew {
		return answercache.NewFlight(limit), true
	}
	return c.flights.Join(a.key, limit, c.o.beginning(), a.sameSince)
}

// start lets the answer be computed. What computes it is a request of its own: that of the client, but with
// the flight for its client, so that it does not end with that one.
func (c *answers) start(ctx context.Context, a *cacheRequest, f *answercache.Flight) {
	a.flight = f
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx)) // ends when nobody listens, or it is over
	f.OnAbandon(cancel)
	to := &recorder{ctx: ctx, flight: f, header: http.Header{}}
	q := a.q.computing(ctx, to)
	to.of = q.w
	began := c.o.beginning()
	c.o.computing.Go(func() {
		defer cancel(nil)
		var broke crash
		var err error
		func() {
			defer broke.keep(&err)
			if f := a.do(q, ctx); f != nil {
				err = f
			}
		}()
		if err == nil {
			c.keep(a, q, began)
		}
		f.Done(q, err)
	})
}

// computing is a request that asks what q asks, in its name, until ctx ends, and has to for its client. What
// came of q is not yet known of it.
func (q *request) computing(ctx context.Context, to http.ResponseWriter) *request {
	own := *q
	own.r, own.outcome = q.r.Clone(ctx), requestOutcome{mode: q.outcome.mode}
	own.w = &client{ResponseWriter: to, rc: *http.NewResponseController(to), q: &own, limit: q.w.limit}
	return &own
}

// listen gives the client what the flight brings.
func (c *answers) listen(
	ctx context.Context, a *cacheRequest, l *answercache.Listener, leads bool,
) *failure {
	for {
		head, chunk, err := l.Next(ctx)
		if err != nil {
			return c.ended(ctx, a, l, leads, err)
		}
		if !a.q.w.begun {
			if !leads && a.tooOld(head) {
				l.Leave(nil) // or the others would wait for it
				return c.alone(ctx, a)
			}
			if !leads {
				a.note(cacheJoined)
			}
			a.q.w.replay(head)
		}
		if f := a.pass(head, chunk, leads); f != nil {
			return f
		}
	}
}

// pass writes a part of the answer.
func (a *cacheRequest) pass(head answercache.Head, chunk []byte, leads bool) *failure {
	if !head.Stream {
		if _, err := a.q.w.Write(chunk); err != nil {
			return lost(err)
		}
		return nil
	}
	if err := a.q.w.send(chunk); err != nil {
		return lost(err)
	}
	n := bytes.Count(chunk, blankLine)
	a.q.w.sent += n
	if !leads { // the computation has counted them for the first
		a.q.o.m.Requests.Events.Add(float64(n))
	}
	return nil
}

// ended judges the end of a flight for one of its listeners.
func (c *answers) ended(
	ctx context.Context, a *cacheRequest, l *answercache.Listener, leads bool, err error,
) *failure {
	if by, _ := l.Flight().By(); leads {
		if computed, ok := by.(*request); ok {
			a.q.outcome.mode, a.q.outcome.rec = computed.outcome.mode, computed.outcome.rec
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case ctx.Err() != nil:
		return goneFailure(ctx, site{phase: "stream"})
	case !leads && !a.q.w.begun: // a failure is nobody else's
		return c.alone(ctx, a)
	}
	var broke *panicked
	if errors.As(err, &broke) && leads {
		panic(broke)
	}
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	return refuse(kindPanic, site{phase: "stream"})
}

// alone answers a request whose flight brought nothing.
func (c *answers) alone(ctx context.Context, a *cacheRequest) *failure {
	if c.give(a) {
		return nil
	}
	a.note(cacheMiss)
	return a.do(a.q, ctx)
}

// errNotLed ends a flight that nobody computes, since whoever should have let it begin has panicked.
var errNotLed = errors.New("the answer is computed by nobody")

// errKept ends a flight whose answer was kept before it began.
var errKept = errors.New("the answer is there")

// replay begins an answer as another request's began.
func (c *client) replay(head answercache.Head) {
	maps.Copy(c.Header(), head.Header)
	c.stream = head.Stream
	c.WriteHeader(head.Status)
}

// recorder is the way to the listeners of a flight, for a request that takes them for its client.
type recorder struct {
	ctx    context.Context
	flight *answercache.Flight
	header http.Header
	of     *client
}

// Header implements [http.ResponseWriter].
func (r *recorder) Header() http.Header { return r.header }

// WriteHeader implements [http.ResponseWriter].
func (r *recorder) WriteHeader(status int) {
	r.flight.Begin(answercache.Head{Status: status, Header: r.header.Clone(), Stream: r.of.stream})
}

// Write implements [http.ResponseWriter].
func (r *recorder) Write(b []byte) (int, error) {
	if err := r.flight.Append(r.ctx, b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Flush implements [http.Flusher]: listeners have got everything.
func (r *recorder) Flush() {}

// tenant is who may read an answer: whoever shows the same key.
func tenant(h http.Header) string {
	token := h.Get("Authorization") + "\x00" + h.Get("X-Api-Key")
	if token == "\x00" {
		return ""
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(token)))
}
