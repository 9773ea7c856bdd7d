package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// reference is the simplest router: net/http on both sides, the same two legs, replicas in turn, no decision,
// no retry.
type reference struct {
	prefill, decode []string // URLs
	next            atomic.Uint64
	transport       *http.Transport
}

var _ http.Handler = (*reference)(nil)

// runReference is the subcommand.
func runReference(ctx context.Context, args []string) error {
	r := &reference{transport: newTransport()}
	fs := flag.NewFlagSet("reference", flag.ContinueOnError)
	listen := fs.String("listen", "127.0.0.1:0", "address")
	lean := fs.Bool("lean", false, "send to engines with tandem's client instead of net/http's")
	fs.Func("prefill", "URL of a prefill replica, repeated",
		func(s string) error { r.prefill = append(r.prefill, s); return nil })
	fs.Func("decode", "URL of a decode replica, repeated",
		func(s string) error { r.decode = append(r.decode, s); return nil })
	if err := fs.Parse(args); err != nil {
		return err
	}
	if len(r.prefill) == 0 || len(r.decode) == 0 {
		return errors.New("reference: -prefill and -decode are needed")
	}
	ln, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	s := &http.Server{Handler: r}
	if *lean {
		if s.Handler, err = newBare(r.prefill, r.decode); err != nil {
			return err
		}
	}
	defer context.AfterFunc(ctx, func() { s.Close() })()
	if err := s.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func newTransport() *http.Transport {
	return &http.Transport{MaxIdleConnsPerHost: 1024, IdleConnTimeout: 4 * time.Second, DisableCompression: true}
}

func (r *reference) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if err := r.serve(w, req); err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
}

func (r *reference) serve(w http.ResponseWriter, req *http.Request) error {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return err
	}
	n := int(r.next.Add(1))
	leg1, err := prefillLeg(nil, body)
	if err != nil {
		return err
	}
	answer, err := r.post(req.Context(), r.prefill[n%len(r.prefill)]+req.URL.Path, leg1)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	reply, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	leg2, err := decodeLeg(nil, body, reply)
	if err != nil {
		return err
	}
	answer, err = r.post(req.Context(), r.decode[n%len(r.decode)]+req.URL.Path, leg2)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	return forward(w, answer)
}

func (r *reference) post(ctx context.Context, url string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return r.transport.RoundTrip(req)
}

// forward copies an answer. It flushes a stream after each read.
func forward(w http.ResponseWriter, answer *http.Response) error {
	kind := answer.Header.Get("Content-Type")
	w.Header().Set("Content-Type", kind)
	if length := answer.Header.Get("Content-Length"); length != "" {
		w.Header().Set("Content-Length", length)
	}
	w.WriteHeader(answer.StatusCode)
	stream, flusher := strings.HasPrefix(kind, "text/event-stream"), http.NewResponseController(w)
	buf := make([]byte, 32<<10)
	for {
		n, err := answer.Body.Read(buf)
		_, _ = w.Write(buf[:n]) // if the client disconnects, the body ends too
		if stream && n > 0 {
			flusher.Flush()
		}
		if err != nil {
			return nil // the head is sent: an error can no longer be reported
		}
	}
}
