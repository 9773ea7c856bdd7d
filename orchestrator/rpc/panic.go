package rpc

import (
	"context"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// gRPC runs calls on its own goroutines and does not recover from panics: a panic would end the process and
// every stream.

func (o Options) guardCall(
	ctx context.Context, req any, _ *grpc.UnaryServerInfo, call grpc.UnaryHandler,
) (answer any, err error) {
	defer o.recovered(&err)
	return call(ctx, req)
}

// GuardStream is a [grpc.StreamServerInterceptor] that reports panics to o.Panicked.
func (o Options) GuardStream(
	srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, call grpc.StreamHandler,
) (err error) {
	defer o.recovered(&err)
	return call(srv, s)
}

// recovered must be deferred.
func (o Options) recovered(err *error) {
	v := recover()
	if v == nil {
		return
	}
	if o.Panicked != nil {
		o.Panicked(v, debug.Stack())
	}
	*err = status.Error(codes.Internal, "the router failed on this call")
}
