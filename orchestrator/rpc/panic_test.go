package rpc

import (
	"context"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tandem-router/tandem/orchestrator/planner"
	"github.com/tandem-router/tandem/orchestrator/rpc/tandemv1"
)

// A call that panics, of either kind, gets an error, and somebody is told; the server goes on.
func TestCallsThatPanicEndAlone(t *testing.T) {
	var reported atomic.Int32
	c := tandemv1.NewRouterClient(dial(t, Options{
		Explain:  func(context.Context, []byte) (*planner.Decision, error) { panic("a bug") },
		Watch:    func(context.Context, func(Record, uint64) error) error { panic("a bug") },
		Panicked: func(any, []byte) { reported.Add(1) },
	}))
	prompt := &tandemv1.PlanRequest{Model: "m", Prompt: &tandemv1.PlanRequest_Text{Text: "a"}}
	for range 2 {
		if _, err := c.Plan(t.Context(), prompt); status.Code(err) != codes.Internal {
			t.Errorf("Plan says %v", err)
		}
		stream, err := c.WatchDecisions(t.Context(), &tandemv1.WatchDecisionsRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		if status.Code(err) != codes.Internal {
			t.Errorf("WatchDecisions says %v", err)
		}
	}
	if reported.Load() != 4 {
		t.Errorf("%d panics were told of, want 4", reported.Load())
	}
}
