package orchestrator

import (
	"cmp"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-router/tandem/internal/answercache"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/orchestrator/observe"
)

// client is the connection to a client. Everything for the client is written through it. [client.whole]
// writes an answer at once. [client.events] begins a stream and continues it. [client.fail] reports a failure
// in the form that is still possible: a status before the first byte, otherwise an event of the client's API.
//
// A write takes at most timeouts.client_write, or it fails.
type client struct {
	http.ResponseWriter
	rc     http.ResponseController
	shows  *config.Response   // the parts of the decision for the header; immutable
	count  prometheus.Counter // of events
	limit  time.Duration      // for one write; immutable
	timed  bool               // HTTP/2: a write deadline ends the stream even while nothing is written
	begun  bool               // something has been written
	stream bool               // the answer is a stream of events
	sent   int                // events of the stream
	status int                // the status of the answer; 0 before the answer
	until  time.Time          // the present write deadline
	values [3]string          // memory of the header's values
}

// Unwrap is for [http.ResponseController].
func (c *client) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// WriteHeader begins an answer.
func (c *client) WriteHeader(status int) {
	c.begun, c.status = true, status
	c.ResponseWriter.WriteHeader(status)
}

// mostAtOnce is the largest part that is written within one time limit. So a client that reads slowly can get
// a large answer too.
const mostAtOnce = 128 << 10

// Write leaves its deadline set, also for what net/http sends after the end of the handler.
func (c *client) Write(b []byte) (n int, err error) {
	c.begun = true
	for {
		c.bound()
		part := min(len(b)-n, mostAtOnce)
		m, err := c.ResponseWriter.Write(b[n : n+part])
		if n += m; err != nil || n == len(b) {
			return n, err
		}
	}
}

// writeSlack is by how much a write may exceed its time limit. Setting a deadline is a large part of the cost
// of an event, so not every event sets one.
const writeSlack = 500 * time.Millisecond

// bound gives the next write the time limit, or a little more.
func (c *client) bound() {
	now := time.Now()
	if !c.timed && c.until.Sub(now) >= c.limit {
		return
	}
	c.until = now.Add(c.limit + writeSlack)
	_ = c.rc.SetWriteDeadline(c.until) // not every connection of a test has deadlines
}

// send writes a part of a stream at once.
func (c *client) send(b []byte) error {
	if _, err := c.Write(b); err != nil {
		return err
	}
	if err := c.rc.Flush(); err != nil {
		return err
	}
	if c.timed {
		_ = c.rc.SetWriteDeadline(time.Time{})
	}
	return nil
}

// These are the places of header values in client.values.
const (
	idOf = iota
	typeOf
	lengthOf
)

// head sets a field of the answer's header. The value is stored in its place of client.values.
func (c *client) head(key string, place int, value string) {
	c.values[place] = value
	c.Header()[key] = c.values[place : place+1 : place+1]
}

// whole writes an answer that is not streamed. rec is the record of its decision; nil without a decision.
func (c *client) whole(status int, contentType string, body []byte, rec *observe.Record) *failure {
	c.tellDecision(rec)
	if contentType != "" {
		c.head("Content-Type", typeOf, contentType)
	}
	c.head("Content-Length", lengthOf, strconv.Itoa(len(body)))
	c.WriteHeader(status)
	if _, err := c.Write(body); err != nil {
		return lost(err)
	}
	return nil
}

// These are the header fields of every stream. They must not be changed.
var (
	eventStream = []string{"text/event-stream; charset=utf-8"}
	noCache     = []string{"no-cache"}
	noBuffering = []string{"no"} // otherwise nginx would delay events
)

// begin starts a stream, once. It is called with the first generated events: until then an engine's error can
// have its own status.
func (c *client) begin(rec *observe.Record) {
	if c.begun {
		return
	}
	c.tellDecision(rec)
	c.streams()
	c.WriteHeader(http.StatusOK)
}

// streams records that the answer is a stream.
func (c *client) streams() {
	h := c.Header()
	h["Content-Type"] = eventStream
	h["Cache-Control"] = noCache
	h["X-Accel-Buffering"] = noBuffering
	c.stream = true
}

// Begun reports whether the answer has begun.
func (c *client) Begun() bool { return c.begun }

// BeginAs begins an answer with the head of a stored answer, or of another request's answer.
func (c *client) BeginAs(head answercache.Head) {
	maps.Copy(c.Header(), head.Header)
	if head.Stream {
		c.streams()
	}
	c.WriteHeader(head.Status)
}

// Send writes a part of an answer that [client.BeginAs] began. events is the number of events in a part of a
// stream.
func (c *client) Send(part []byte, stream bool, events int) error {
	if !stream {
		_, err := c.Write(part)
		return err
	}
	if err := c.send(part); err != nil {
		return err
	}
	c.sent += events
	return nil
}

// events sends n whole events of a stream at once.
func (c *client) events(b []byte, n int, rec *observe.Record) *failure {
	c.begin(rec)
	if err := c.send(b); err != nil {
		return lost(err)
	}
	c.sent += n
	c.count.Add(float64(n))
	return nil
}

// tellDecision sets the header fields that explain the decision, and the fields that name the replicas, as
// far as the configuration asks for them.
func (c *client) tellDecision(rec *observe.Record) {
	if rec == nil {
		return
	}
	h, want := c.Header(), c.shows
	if want.Replicas && rec.Decode != "" {
		h.Set("X-Tandem-Decode", rec.Decode)
		if rec.Prefill != "" {
			h.Set("X-Tandem-Prefill", rec.Prefill)
		}
	}
	if !want.Headers {
		return
	}
	h.Set("X-Tandem-Decision", rec.ID)
	h.Set("X-Tandem-Mode", rec.Mode)
	if rec.Captured >= 0 {
		h.Set("X-Tandem-Matched-Tokens", strconv.Itoa(rec.Captured))
	}
}

// fail reports a failure to the client in the words of the client's API. A client that has left gets nothing:
// see [request.abandon].
func (c *client) fail(f *failure, kind openai.Kind) {
	switch {
	case f.gone():
	case c.stream:
		c.breakOff(f, kind)
	case !c.begun:
		c.refuse(f, kind)
	}
}

// refuse answers with the status of the failure.
func (c *client) refuse(f *failure, kind openai.Kind) {
	reply, h := f.shaped(kind), c.Header()
	if f.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(max(1, int((f.retryAfter+time.Second-1)/time.Second))))
	} else if reply.status == http.StatusServiceUnavailable || reply.status == http.StatusTooManyRequests {
		h.Set("Retry-After", "1")
	}
	typ := cmp.Or(reply.contentType, "application/json")
	_ = c.whole(reply.status, typ, reply.body, nil) // an error of the connection does not matter here
}

// breakOff ends a stream with an error event, unless the engine's own event was sent, and with the API's end
// of streams.
func (c *client) breakOff(f *failure, kind openai.Kind) {
	b, n := []byte(kind.EndMark()), 1
	if !f.delivered {
		b, n = f.event(kind, c.sent), 2
	}
	if kind.EndMark() == "" {
		n--
	}
	if n > 0 {
		_ = c.events(b, n, nil) // an error of the connection does not matter here
	}
}
