package main

import (
	"context"
	"encoding/json"

	"google.golang.org/grpc"

	"github.com/tandem-router/tandem/orchestrator"
	"github.com/tandem-router/tandem/orchestrator/observe"
	"github.com/tandem-router/tandem/orchestrator/rpc"
)

// newRPC is the gRPC side of the admin listener, over o.
func newRPC(o *orchestrator.Orchestrator) *grpc.Server {
	watch := func(ctx context.Context, send func(rpc.Record, uint64) error) error {
		return o.WatchDecisions(ctx, func(r *observe.Record, lost uint64) error {
			text, err := json.Marshal(r)
			if err != nil {
				return err
			}
			return send(rpc.Record{
				ID: r.ID, Time: r.Time, Model: r.Model, Mode: r.Mode, Prefill: r.Prefill, Decode: r.Decode,
				Reason: r.Reason, Outcome: r.Outcome, Status: r.Status, JSON: text,
				Prompt: r.Prompt, Available: r.Available, Captured: r.Captured, Delivered: r.Delivered, Blind: r.Blind,
			}, lost)
		})
	}
	return rpc.New(rpc.Options{
		Explain: o.DryRun, Ready: o.Ready, Panicked: o.Panicked, Watch: watch,
		MaxRequest: int(o.Config().Limits.BodyBytes),
	})
}
