package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/tandem-router/tandem/orchestrator/rpc/tandemv1"
)

// health answers with the readiness of the moment. The library's own health server wants to be told of each
// change instead.
type health struct {
	healthv1.UnimplementedHealthServer
	ready func() bool
	every time.Duration // between two looks of a watcher
}

var services = []string{"", tandemv1.Router_ServiceDesc.ServiceName}

func (h *health) status() healthv1.HealthCheckResponse_ServingStatus {
	if h.ready == nil || h.ready() {
		return healthv1.HealthCheckResponse_SERVING
	}
	return healthv1.HealthCheckResponse_NOT_SERVING
}

func known(service string) bool { return service == services[0] || service == services[1] }

// Check answers for the whole server ("") and for the Router service.
func (h *health) Check(
	_ context.Context, r *healthv1.HealthCheckRequest,
) (*healthv1.HealthCheckResponse, error) {
	if !known(r.GetService()) {
		return nil, status.Errorf(codes.NotFound, "there is no service %q", r.GetService())
	}
	return &healthv1.HealthCheckResponse{Status: h.status()}, nil
}

// List answers for both.
func (h *health) List(context.Context, *healthv1.HealthListRequest) (*healthv1.HealthListResponse, error) {
	all := map[string]*healthv1.HealthCheckResponse{}
	for _, s := range services {
		all[s] = &healthv1.HealthCheckResponse{Status: h.status()}
	}
	return &healthv1.HealthListResponse{Statuses: all}, nil
}

// Watch sends the status at once and at each change.
func (h *health) Watch(r *healthv1.HealthCheckRequest, stream healthv1.Health_WatchServer) error {
	look := h.status
	if !known(r.GetService()) {
		look = func() healthv1.HealthCheckResponse_ServingStatus {
			return healthv1.HealthCheckResponse_SERVICE_UNKNOWN
		}
	}
	tick := time.NewTicker(h.every)
	defer tick.Stop()
	for last := healthv1.HealthCheckResponse_UNKNOWN; ; {
		if now := look(); now != last {
			last = now
			if err := stream.Send(&healthv1.HealthCheckResponse{Status: now}); err != nil {
				return err
			}
		}
		select {
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-tick.C:
		}
	}
}
