// Package rpc serves the gRPC side of the admin listener: plan a request without sending it, watch decisions,
// health and reflection.
package rpc

import (
	"context"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"github.com/tandem-router/tandem/orchestrator/planner"
	"github.com/tandem-router/tandem/orchestrator/rpc/tandemv1"
)

// Options holds the parts of the services. A nil function is answered with UNIMPLEMENTED, and nil readiness
// with SERVING.
type Options struct {
	// Explain plans the request with this OpenAI body, a completion or a chat, and books nothing. It may ask
	// engines, within ctx. It is called from the goroutine of each call.
	Explain func(ctx context.Context, body []byte) (*planner.Decision, error)

	// Watch calls send for each new record, from one goroutine, until ctx ends or send fails, and returns send's
	// error. It must not delay requests while it waits for send: it keeps a bounded number of records and drops
	// the rest. lost counts the records that were dropped for this caller since the previous one.
	Watch func(ctx context.Context, send func(r Record, lost uint64) error) error

	// Ready reports whether requests can be served. It is asked on each health check and once a second by each
	// health watcher.
	Ready func() bool

	// Panicked is called after a panic in a call, which gets INTERNAL; may be nil.
	Panicked func(value any, stack []byte)

	// MaxRequest limits a request in bytes; 0 uses the limit of gRPC, 4 MiB.
	MaxRequest int
}

// Record is one decision and the result of its request.
type Record struct {
	ID      string
	Time    time.Time
	Model   string
	Mode    string // split, local, unsplit or none
	Prefill string
	Decode  string
	Reason  string
	Outcome string
	Status  int    // HTTP status for the client
	JSON    []byte // the whole record

	Prompt    int // tokens
	Available int // cached tokens on any replica as far as known; -1: unknown
	Captured  int // by the index: cached tokens on the replica that prefilled; -1: unknown
	Delivered int // the same by the engine; -1: unknown
	Blind     int // replicas left out of Available
}

// New returns a server with the services of o. It has no listener: give it to [Handler]; call Stop when the
// listener's server has been closed.
func New(o Options) *grpc.Server {
	options := []grpc.ServerOption{grpc.UnaryInterceptor(o.guardCall), grpc.StreamInterceptor(o.GuardStream)}
	if o.MaxRequest > 0 {
		options = append(options, grpc.MaxRecvMsgSize(o.MaxRequest))
	}
	s := grpc.NewServer(options...)
	tandemv1.RegisterRouterServer(s, &router{explain: o.Explain, watch: o.Watch})
	healthv1.RegisterHealthServer(s, NewHealth(map[string]func() bool{
		"": o.Ready, tandemv1.Router_ServiceDesc.ServiceName: o.Ready,
	}))
	reflection.Register(s)
	return s
}

// Handler gives gRPC requests to g and all others to h. The server around it must speak HTTP/2: see
// [Protocols].
func Handler(g *grpc.Server, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			g.ServeHTTP(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
}
