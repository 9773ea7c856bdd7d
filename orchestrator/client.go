package orchestrator

import (
	"net/http"
	"time"
)

// client is the way back to a client. Whatever is written to it, answers, events, errors or health, goes out within timeouts.client_write, or the write fails.
type client struct {
	http.ResponseWriter
	rc    *http.ResponseController
	limit time.Duration // for one write; immutable
	begun bool          // something has been written
	timed bool          // HTTP/2: a write deadline is a timer there, which ends the stream although nothing is being written
}

// toClient bounds the writes to w.
func (o *Orchestrator) toClient(w http.ResponseWriter, r *http.Request) *client {
	if c, ok := w.(*client); ok {
		return c
	}
	return &client{ResponseWriter: w, rc: http.NewResponseController(w), limit: o.snap.Load().cfg.Timeouts.ClientWrite, timed: r.ProtoMajor >= 2}
}

// Unwrap is for [http.ResponseController].
func (c *client) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// WriteHeader begins an answer.
func (c *client) WriteHeader(status int) {
	c.begun = true
	c.ResponseWriter.WriteHeader(status)
}

// Write leaves the deadline where it is, for what net/http sends when the handler has returned.
func (c *client) Write(b []byte) (int, error) {
	c.begun = true
	_ = c.rc.SetWriteDeadline(time.Now().Add(c.limit)) // not every test transport has deadlines
	return c.ResponseWriter.Write(b)
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
