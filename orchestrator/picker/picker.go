// Package picker tells a gateway where to send each request. The package is an endpoint picker of the
// Gateway API Inference Extension (protocol 1.0), over Envoy's external processing.
//
// The gateway opens a stream for each HTTP request. It sends the head and the body, and waits. The picker
// answers with the destination, or with a refusal for the client. Then the gateway sends the answer of the
// engine through the stream. The stream ends with the answer, or earlier if the client leaves.
//
//	gateway                 picker
//	request head, body ──>  plan and book
//	             <──── head with the destination, body (or ImmediateResponse: 429, 503)
//	answer head, body ───>  learn, release the booking at the end
//	             <──── the same without transfer params
package picker

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/tandem-router/tandem/orchestrator/picker/extprocv3"
	"github.com/tandem-router/tandem/orchestrator/rpc"
)

// Options is what the server is made of.
type Options struct {
	// Pick plans r. Pick calls Send of x and follows the answer, or writes an answer to w. Pick returns at the
	// end of the answer, or panics with [http.ErrAbortHandler] if the client has left. The goroutine of each
	// stream calls Pick.
	Pick func(w http.ResponseWriter, r *http.Request, x *Exchange)

	// Ready reports whether requests can be served, for health checks.
	Ready func() bool

	// Panicked gets each panic of a stream, or is nil. The stream ends with INTERNAL.
	Panicked func(value any, stack []byte)

	// SidecarPort is the port that stands in for that of a decode engine in destinations and subsets: the
	// routing sidecar in its pod listens there. 0 sends requests to the engines themselves.
	SidecarPort int

	// WriteTimeout is the most that one message to a gateway may take. It is asked for each stream, by the
	// stream's goroutine.
	WriteTimeout func() time.Duration

	// MaxRequest bounds the body of a request in bytes. It must be above 0.
	MaxRequest int
}

// Times after which a gateway that says nothing counts as gone. Its bookings end then.
const (
	pingAfter = 10 * time.Second
	pongAfter = 5 * time.Second
)

// Server serves gateways. Its methods correspond to the methods of [http.Server].
type Server struct {
	*grpc.Server // Serve
}

// New returns a server with the external processor and gRPC health.
func New(o Options) Server {
	s := grpc.NewServer(
		grpc.StreamInterceptor(rpc.Options{Panicked: o.Panicked}.GuardStream),
		grpc.MaxRecvMsgSize(o.MaxRequest+envelope),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pongAfter}),
		grpc.WaitForHandlers(true),
	)
	extprocv3.RegisterExternalProcessorServer(s, &processor{o: o})
	healthv1.RegisterHealthServer(s, rpc.NewHealth(map[string]func() bool{
		"": o.Ready, "liveness": nil, "readiness": o.Ready,
		extprocv3.ExternalProcessor_ServiceDesc.ServiceName: o.Ready,
	}))
	return Server{s}
}

// Shutdown lets streams end until ctx ends, and then cuts the remaining streams. It returns when all streams
// have ended.
func (s Server) Shutdown(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.GracefulStop()
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		s.Stop()
		<-ended
		return ctx.Err()
	}
}

// Close cuts all streams.
func (s Server) Close() error {
	s.Stop()
	return nil
}

// envelope is how many bytes a message may have beside a body.
const envelope = 1 << 20

// processor serves the streams of gateways.
type processor struct {
	extprocv3.UnimplementedExternalProcessorServer
	o Options
}

// Process serves the stream of one HTTP request.
func (p *processor) Process(stream extprocv3.ExternalProcessor_ProcessServer) error {
	x := &Exchange{
		stream: stream, sidecar: p.o.SidecarPort, write: p.o.WriteTimeout(),
		in: make(chan *extprocv3.ProcessingRequest), over: make(chan struct{}),
		out: make(chan *extprocv3.ProcessingResponse), sent: make(chan error, 1), late: time.NewTimer(0),
	}
	// Both goroutines end soon after this function: gRPC ends the stream then.
	go x.receive()
	go x.transmit()
	defer close(x.over)
	defer close(x.out)
	w := &refusal{x: x, header: http.Header{}}
	switch r, err := x.request(); {
	case errors.Is(err, errTarget): // the client's mistake, and not the gateway's
		http.Error(w, "the path or query of the URL cannot be read", http.StatusBadRequest)
	case err != nil:
		return err
	default:
		p.pick(w, r, x)
	}
	return x.end(w)
}

// pick lets the client leave in the way of HTTP handlers.
func (p *processor) pick(w http.ResponseWriter, r *http.Request, x *Exchange) {
	defer func() {
		if v := recover(); v != nil && v != http.ErrAbortHandler {
			panic(v)
		}
	}()
	p.o.Pick(w, r, x)
}

// end ends a stream whose request is over. A client that has got nothing of an answer gets the refusal.
func (x *Exchange) end(w *refusal) error {
	switch {
	case x.passed:
		return nil
	case x.wrong != nil:
		return x.wrong
	case w.status == 0:
		return status.Error(codes.Canceled, "the client has left")
	case !x.answering:
		return x.send(w.response())
	case w.status == http.StatusGatewayTimeout:
		return status.Error(codes.DeadlineExceeded, "the answer did not come in time")
	}
	return status.Error(codes.Unavailable, "the answer was broken off")
}

// errModes is what a gateway is told whose filter would not show the bodies.
var errModes = status.Error(codes.FailedPrecondition,
	"set processing_mode of the ext_proc filter: request_body_mode and response_body_mode "+
		"FULL_DUPLEX_STREAMED, all others SEND")

var errDeaf = status.Error(codes.DeadlineExceeded,
	"the gateway, or its client, did not read the answer in time (timeouts.client_write)")

var errTarget = errors.New("the target of the request cannot be read")

var errOrder = status.Error(codes.InvalidArgument,
	"the gateway sent messages in another order than the protocol has")

// destination returns the address that the gateway gets for the decode engine at address.
func (x *Exchange) destination(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil || x.sidecar == 0 {
		return address
	}
	return net.JoinHostPort(host, strconv.Itoa(x.sidecar))
}
