package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// health answers with the present readiness. The library's own health server would need a report of each
// change.
type health struct {
	healthv1.UnimplementedHealthServer
	services map[string]func() bool // whether each service is ready; nil means always
	every    time.Duration          // time between two checks of a watcher
}

// NewHealth returns a health service for the named services. The function of a service reports whether the
// service is ready; nil stands for always. Each check calls the function, and each watcher calls the function
// once a second.
func NewHealth(services map[string]func() bool) healthv1.HealthServer {
	return &health{services: services, every: time.Second}
}

func (h *health) status(service string) healthv1.HealthCheckResponse_ServingStatus {
	if ready := h.services[service]; ready == nil || ready() {
		return healthv1.HealthCheckResponse_SERVING
	}
	return healthv1.HealthCheckResponse_NOT_SERVING
}

func (h *health) known(service string) bool {
	_, known := h.services[service]
	return known
}

// Check answers for one service, or for the whole server ("").
func (h *health) Check(
	_ context.Context, r *healthv1.HealthCheckRequest,
) (*healthv1.HealthCheckResponse, error) {
	if !h.known(r.GetService()) {
		return nil, status.Errorf(codes.NotFound, "there is no service %q", r.GetService())
	}
	return &healthv1.HealthCheckResponse{Status: h.status(r.GetService())}, nil
}

// List answers for all.
func (h *health) List(context.Context, *healthv1.HealthListRequest) (*healthv1.HealthListResponse, error) {
	all := map[string]*healthv1.HealthCheckResponse{}
	for s := range h.services {
		all[s] = &healthv1.HealthCheckResponse{Status: h.status(s)}
	}
	return &healthv1.HealthListResponse{Statuses: all}, nil
}

// Watch sends the status at once and at each change.
func (h *health) Watch(r *healthv1.HealthCheckRequest, stream healthv1.Health_WatchServer) error {
	look := func() healthv1.HealthCheckResponse_ServingStatus { return h.status(r.GetService()) }
	if !h.known(r.GetService()) {
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
