package fleet

import (
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"

	"github.com/tandem-router/tandem/internal/engine"
)

// openEvents opens the server's stream of server-sent events at a path: a [kvevents.Opener].
func (w *Watcher) openEvents(ctx context.Context, path, after string) (io.ReadCloser, error) {
	r := &engine.Request{
		Method: http.MethodGet, Path: path, Idempotent: true,
		Header: []engine.Field{{Key: "Accept", Value: "text/event-stream"}},
	}
	if after != "" {
		r.Header = append(r.Header, engine.Field{Key: "Last-Event-Id", Value: after})
	}
	resp, err := w.client.Do(ctx, r)
	if err != nil {
		return nil, err
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")) // "" where it cannot be read
	if resp.Status != http.StatusOK || kind != "text/event-stream" {
		resp.Close()
		return nil, fmt.Errorf("GET %s: status %d, %.100q", path, resp.Status, kind)
	}
	resp.SetIdle(0) // an engine with nothing to say is well
	return &eventBody{resp: resp}, nil
}

// eventBody reads an answer's body. One goroutine reads; who closes waits for it first.
type eventBody struct {
	resp *engine.Response
	rest []byte
}

// Read implements [io.Reader].
func (b *eventBody) Read(dst []byte) (int, error) {
	if len(b.rest) == 0 {
		var err error
		if b.rest, err = b.resp.Next(); err != nil {
			return 0, err
		}
	}
	n := copy(dst, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// Close implements [io.Closer].
func (b *eventBody) Close() error {
	b.resp.Close()
	return nil
}
