package orchestrator

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/http1"
)

// Listeners are a router's open sockets. Admin may be nil.
type Listeners struct {
	Front, Admin net.Listener
}

// Listen opens the listeners of the configuration in force. The front listener has TLS if it is configured.
// Each connection gets the certificate that is in force when the client connects.
func (o *Orchestrator) Listen() (Listeners, error) {
	var l Listeners
	cfg := o.Config()
	front, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return l, fmt.Errorf("listen: %w", err)
	}
	if cfg.TLS.Enabled() {
		front = tls.NewListener(front, &tls.Config{
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return o.certificate.Load(), nil },
			MinVersion:     tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		})
	}
	l.Front = front
	if cfg.Admin.Listen == "off" {
		return l, nil
	}
	if l.Admin, err = net.Listen("tcp", cfg.Admin.Listen); err != nil {
		return l, errors.Join(fmt.Errorf("admin.listen: %w", err), front.Close())
	}
	return l, nil
}

// FrontServer serves the front listener. Its methods correspond to the methods of [http.Server].
type FrontServer interface {
	Serve(l net.Listener) error
	Shutdown(ctx context.Context) error
	Close() error
}

// Serve runs the router on l until ctx ends. Then readiness fails. After timeouts.unready, Serve refuses new
// requests, lets streams finish within the drain time, cuts the remaining ones, stops the watchers and
// returns when everything has ended. admin is the handler of the admin listener.
func (o *Orchestrator) Serve(ctx context.Context, l Listeners, admin http.Handler) error {
	requests, cut := context.WithCancelCause(context.Background()) // the context of requests; ended below
	defer cut(nil)
	return o.ServeBy(ctx, o.frontServer(requests, o.Config()), l, admin, cut)
}

// ServeBy is Serve with another server for the front listener. cut ends the requests that still run at the
// end of the drain time.
func (o *Orchestrator) ServeBy(
	ctx context.Context, front FrontServer, l Listeners, admin http.Handler, cut context.CancelCauseFunc,
) error {
	work, stopWork := context.WithCancel(context.Background()) // outlives ctx by the drain time; ended below
	defer stopWork()
	running := make(chan error, 1)
	go func() { running <- o.Run(work) }()

	failed := make(chan error, 2)
	go func() { failed <- front.Serve(l.Front) }()
	var back *http.Server
	if l.Admin != nil {
		back = adminServer(o.admin.Gate(admin), o.log)
		go func() { failed <- back.Serve(l.Admin) }()
	}

	why, err := o.untilEnd(ctx, failed)
	o.log.Info("draining", "why", why, "in_flight", o.InFlight(), "at_most", o.Config().Timeouts.Drain)
	o.Drain()
	o.shutdown(front, cut)
	stopWork()
	err = errors.Join(err, <-running)
	if back != nil {
		err = errors.Join(err, back.Close())
	}
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	o.log.Info("ended")
	return err
}

// untilEnd returns when the front should close, and why: when a listener has failed, with its error, or
// timeouts.unready after the end of ctx. In this time load balancers notice that the router is not ready.
func (o *Orchestrator) untilEnd(ctx context.Context, failed <-chan error) (why string, err error) {
	select {
	case <-ctx.Done():
		why = context.Cause(ctx).Error() // names the signal
	case err = <-failed:
		return fmt.Sprint(err), err
	}
	o.Unready()
	wait := o.Config().Timeouts.Unready
	if wait == 0 {
		return why, nil
	}
	o.log.Info("not ready, but still serving", "why", why, "for", wait)
	select {
	case <-time.After(wait):
	case err = <-failed:
	}
	return why, err
}

// shutdown lets requests finish during the drain time. Then it cuts them and waits for their handlers.
func (o *Orchestrator) shutdown(front FrontServer, cut context.CancelCauseFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), o.Config().Timeouts.Drain)
	defer cancel()
	if front.Shutdown(ctx) == nil {
		return
	}
	o.log.Warn("cutting requests that did not finish in the drain time", "in_flight", o.InFlight())
	cut(errStopped)
	ctx, cancel = context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if front.Shutdown(ctx) != nil {
		_ = front.Close()
	}
	// Handlers end after their context has ended. This call only waits for them.
	for i := 0; o.InFlight() > 0 && i < 200; i++ {
		time.Sleep(10 * time.Millisecond)
	}
}

// frontServer serves the front. It leaves file descriptors for engines.
func (o *Orchestrator) frontServer(requests context.Context, cfg *config.Config) *http1.Server {
	return &http1.Server{
		Rest: o.server(requests, o.Front(), cfg), Usual: usualPaths(), MaxConns: mostClients(),
		Refused: o.places.full,
	}
}

// server returns the front's HTTP server, with limits for slow and greedy clients. Requests end when ctx
// ends.
func (o *Orchestrator) server(ctx context.Context, h http.Handler, cfg *config.Config) *http.Server {
	return &http.Server{
		Handler: h, DisableGeneralOptionsHandler: true, ReadHeaderTimeout: cfg.Timeouts.ReadHeader,
		IdleTimeout: cfg.Timeouts.Idle, MaxHeaderBytes: int(cfg.Limits.HeaderBytes),
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(o.log.Handler(), slog.LevelDebug),
	}
}

func adminServer(h http.Handler, log *slog.Logger) *http.Server {
	s := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	s.Protocols = new(http.Protocols)
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true) // gRPC
	return s
}

// refusedClients returns a function that must be called for each refused client. It logs at most once a
// minute.
func (o *Orchestrator) refusedClients(most int) func() {
	var said atomic.Int64
	began := time.Now()
	return func() {
		now := int64(time.Since(began)/time.Minute) + 1
		if said.Swap(now) != now {
			o.log.Warn("clients are refused: file descriptors are kept for the engines; raise the limit of open "+
				"files (ulimit -n, LimitNOFILE)", "connections", most)
		}
	}
}
