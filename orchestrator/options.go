package orchestrator

import (
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/orchestrator/answers"
	"github.com/tandem-router/tandem/orchestrator/observe"
)

// Options holds the parts of an Orchestrator besides its configuration. The zero value works.
type Options struct {
	Log      *slog.Logger         // nil discards
	Tracer   trace.TracerProvider // nil traces nothing
	Registry *prometheus.Registry // nil makes one
	// Dials engines and other routers; nil dials TCP.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// No ZMQ streams are followed, for tests over in-memory networks.
	NoEvents bool
	// Seed of the random numbers that break ties; 0 draws a seed.
	Seed uint64
	// Replaces the configured policy, for tests of other orders.
	Connector connector.Connector
	// The effect of POST /-/reload; nil refuses the request.
	Reload func() error
	// The changes that a reload would make now; nil refuses the request.
	Preview func() ([]config.Change, error)

	openShared    func(*config.AnswerCache) (answers.Shared, error) // instead of a server, for tests
	openDecisions func(config.Decisions, bool) io.WriteCloser       // instead of a file, for tests
	replaceState  func(name string, data []byte) error              // instead of a file, for tests
}

// complete sets defaults for missing options.
func (o *Options) complete() {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	if o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	if o.openDecisions == nil {
		o.openDecisions = observe.OpenDecisions
	}
	if o.replaceState == nil {
		o.replaceState = replaceFile
	}
}
