package answers

import (
	"context"
	"net/http"

	"github.com/tandem-router/tandem/internal/answercache"
)

// Recorder is an [http.ResponseWriter] that brings an answer to the listeners of a flight.
type Recorder struct {
	// Streams reports whether the answer is a stream of events. To be set before the first write.
	Streams func() bool

	ctx    context.Context
	flight *answercache.Flight
	header http.Header
}

// Header implements [http.ResponseWriter].
func (r *Recorder) Header() http.Header { return r.header }

// WriteHeader implements [http.ResponseWriter].
func (r *Recorder) WriteHeader(status int) {
	r.flight.Begin(answercache.Head{Status: status, Header: r.header.Clone(), Stream: r.Streams()})
}

// Write implements [http.ResponseWriter].
func (r *Recorder) Write(b []byte) (int, error) {
	if err := r.flight.Append(r.ctx, b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Flush implements [http.Flusher]. The listeners have everything already.
func (r *Recorder) Flush() {}
