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

// Options is what an Orchestrator is made of besides its configuration. The zero value works.
type Options struct {
	Log      *slog.Logger         // nil discards
	Tracer   trace.TracerProvider // nil traces nothing
	Registry *prometheus.Registry // nil makes one
	// To engines and other routers; nil dials TCP.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Follow no ZMQ streams, for tests over in-memory networks.
	NoEvents bool
	// Of the dice that break ties; 0 draws one.
	Seed uint64
	// Instead of the configured one, for tests of other orders.
	Connector connector.Connector
	// What POST /-/reload does; nil refuses it.
	Reload func() error
	// What that would change now; nil refuses it.
	Preview func() ([]config.Change, error)

	openShared    func(*config.AnswerCache) (answers.Shared, error) // instead of a server, for tests
	openDecisions func(config.Decisions, bool) io.WriteCloser       // instead of a file, for tests
	replaceState  func(name string, data []byte) error              // instead of a file, for tests
}

// complete gives what was left out its default.
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
