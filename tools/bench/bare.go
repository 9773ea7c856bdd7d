package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/tandem-router/tandem/internal/engine"
)

// bare is the cheapest possible front on net/http's server. It sends both legs by tandem's own lean client
// and uses the replicas in turn. It decides, checks and records nothing, so its cost beyond the client is the
// cost of net/http's server.
type bare struct {
	prefill, decode []*engine.Client
	next            atomic.Uint64
}

var _ http.Handler = (*bare)(nil)

// newBare makes a bare front for the engines at these URLs.
func newBare(prefill, decode []string) (*bare, error) {
	f := &bare{}
	var err1, err2 error
	f.prefill, err1 = clients(prefill)
	f.decode, err2 = clients(decode)
	return f, errors.Join(err1, err2)
}

func clients(urls []string) (all []*engine.Client, err error) {
	for _, url := range urls {
		c, err := engine.New(engine.Options{URL: url})
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

func (f *bare) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if err := f.serve(w, req); err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
}

func (f *bare) serve(w http.ResponseWriter, req *http.Request) error {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return err
	}
	n := int(f.next.Add(1))
	leg1, err := prefillLeg(nil, body)
	if err != nil {
		return err
	}
	id := strconv.Itoa(n) // answers must repeat the id, else the client closes the connection
	reply, err := prefillAnswer(req.Context(), f.prefill[n%len(f.prefill)],
		&engine.Request{Method: http.MethodPost, Path: req.URL.Path, ID: id, Body: leg1})
	if err != nil {
		return err
	}
	leg2, err := decodeLeg(nil, body, reply)
	if err != nil {
		return err
	}
	r := &engine.Request{Method: http.MethodPost, Path: req.URL.Path, ID: id, Body: leg2}
	answer, err := f.decode[n%len(f.decode)].Do(req.Context(), r)
	if err != nil {
		return err
	}
	defer answer.Close()
	return passOn(w, answer)
}

func prefillAnswer(ctx context.Context, from *engine.Client, r *engine.Request) ([]byte, error) {
	answer, err := from.Do(ctx, r)
	if err != nil {
		return nil, err
	}
	defer answer.Close()
	if answer.Status != http.StatusOK {
		return nil, fmt.Errorf("prefill answered %d", answer.Status)
	}
	return answer.ReadAll(64 << 20)
}

// passOn copies an answer. It flushes a stream after each read.
func passOn(w http.ResponseWriter, answer *engine.Response) error {
	kind := answer.Header.Get("Content-Type")
	w.Header().Set("Content-Type", kind)
	if answer.ContentLength >= 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(answer.ContentLength, 10))
	}
	w.WriteHeader(answer.Status)
	stream, out := strings.HasPrefix(kind, "text/event-stream"), http.NewResponseController(w)
	for {
		b, err := answer.Next()
		if err != nil {
			return nil // the head is sent: an error can no longer be reported
		}
		_, _ = w.Write(b) // if the client disconnects, the request's context ends too
		if stream {
			_ = out.Flush()
		}
	}
}
