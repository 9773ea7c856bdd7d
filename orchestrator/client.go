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

// client is the connection to a client, and everything written to the client goes through it. [client.whole]
// writes an answer at once. [client.events] begins a stream and continues it. [client.fail] reports a
// failure in the form that is still possible: a status before the first byte, else an event of the client's
// API.
//
// Whatever is written goes out within timeouts.client_write, or the write fails.
type client struct {
	http.ResponseWriter
	rc     http.ResponseController
	shows  *config.Response   // what of the decision goes into the header; immutable
	count  prometheus.Counter // of events
	limit  time.Duration      // for one write; immutable
	timed  bool               // HTTP/2: there a write deadline ends the stream although nothing is being written
	begun  bool               // something has been written
	stream bool               // and it is a stream of events
	sent   int                // events of the stream
	status int                // that the answer began with, 0 before
	until  time.Time          // the write deadline that is set
	values [3]string          // memory of the header's values
}

// Unwrap is for [http.ResponseController].
func (c *client) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// WriteHeader begins an answer.
func (c *client) WriteHeader(status int) {
	c.begun, c.status = true, status
	c.ResponseWriter.WriteHeader(status)
}

// mostAtOnce is the most that is written within one limit: a client that reads slowly gets a large answer,
// too.
const mostAtOnce = 128 << 10

// Write leaves the deadline where it is, for what net/http sends when the handler has returned.
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

// writeSlack is by how much a write may take longer than its limit: setting a deadline is a good part of what
// an event costs, so it is not done for each.
const writeSlack = 500 * time.Millisecond

// bound lets what is written now take the limit, or little more.
func (c *client) bound() {
	now := time.Now()
	if !c.timed && c.until.Sub(now) >= c.limit {
		return
	}
	c.until = now.Add(c.limit + writeSlack)
	_ = c.rc.SetWriteDeadline(c.until) // not every test transport has deadlines
}

// send writes a part of a stream, at once.
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

// Places of header values in client.values.
const (
	idOf = iota
	typeOf
	lengthOf
)

// head sets a field of the answer's header, whose value lies in a place of its own.
func (c *client) head(key string, place int, value string) {
	c.values[place] = value
	c.Header()[key] = c.values[place : place+1 : place+1]
}

// whole gives an answer that is not streamed. rec is of the decision that it came of, nil where none was
// made.
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

// The header fields of every stream, which nobody may change.
var (
	eventStream = []string{"text/event-stream; charset=utf-8"}
	noCache     = []string{"no-cache"}
	noBuffering = []string{"no"} // nginx would hold events back
)

// begin commits to a stream, once. An engine's error has a status of its own until then, so it is called with
// the first events that were generated.
func (c *client) begin(rec *observe.Record) {
	if c.begun {
		return
	}
	c.tellDecision(rec)
	c.streams()
	c.WriteHeader(http.StatusOK)
}

// streams notes that the answer is a stream.
func (c *client) streams() {
	h := c.Header()
	h["Content-Type"] = eventStream
	h["Cache-Control"] = noCache
	h["X-Accel-Buffering"] = noBuffering
	c.stream = true
}

// Begun reports whether the answer has begun.
func (c *client) Begun() bool { return c.begun }

// BeginAs begins an answer as a stored one, or that of another request, began.
func (c *client) BeginAs(head answercache.Head) {
	maps.Copy(c.Header(), head.Header)
	if head.Stream {
		c.streams()
	}
	c.WriteHeader(head.Status)
}

// Send writes a part of an answer that [client.BeginAs] began. A part of a stream has this many events.
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

// events sends n whole events of a stream, at once.
func (c *client) events(b []byte, n int, rec *observe.Record) *failure {
	c.begin(rec)
	if err := c.send(b); err != nil {
		return lost(err)
	}
	c.sent += n
	c.count.Add(float64(n))
	return nil
}

// tellDecision sets the headers that say what was decided, where the configuration wants them, and those that
// name the replicas, where it wants these.
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

// fail tells the client of a failure, in the words of the client's API. A client that has left gets nothing:
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

// refuse answers with the failure's status.
func (c *client) refuse(f *failure, kind openai.Kind) {
	reply, h := f.shaped(kind), c.Header()
	if f.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(max(1, int((f.retryAfter+time.Second-1)/time.Second))))
	} else if reply.status == http.StatusServiceUnavailable || reply.status == http.StatusTooManyRequests {
		h.Set("Retry-After", "1")
	}
	typ := cmp.Or(reply.contentType, "application/json")
	_ = c.whole(reply.status, typ, reply.body, nil) // the client's connection is the server's to judge
}

// breakOff ends a stream with an error event, unless the engine's own has gone out, and with what stands at
// the end of the API's streams.
func (c *client) breakOff(f *failure, kind openai.Kind) {
	b, n := []byte(kind.EndMark()), 1
	if !f.delivered {
		b, n = f.event(kind, c.sent), 2
	}
	if kind.EndMark() == "" {
		n--
	}
	if n > 0 {
		_ = c.events(b, n, nil) // the client's connection is the server's to judge
	}
}
