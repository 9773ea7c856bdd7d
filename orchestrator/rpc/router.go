package rpc

import (
	"context"
	"encoding/json"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/tandem-router/tandem/orchestrator/planner"
	"github.com/tandem-router/tandem/orchestrator/rpc/tandemv1"
)

// router is the Router service.
type router struct {
	tandemv1.UnimplementedRouterServer
	explain func(ctx context.Context, body []byte) (*planner.Decision, error)
	watch   func(ctx context.Context, send func(r Record, lost uint64) error) error
}

// Plan explains a request without sending it.
func (s *router) Plan(ctx context.Context, r *tandemv1.PlanRequest) (*tandemv1.PlanResponse, error) {
	if s.explain == nil {
		return nil, status.Error(codes.Unimplemented, "plans are not explained here")
	}
	body, err := bodyOf(r)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	d, err := s.explain(ctx, body)
	if err != nil {
		return nil, failed(err)
	}
	return response(d)
}

var errNoPrompt = errors.New("the request has none of token_ids, text and body")

// bodyOf returns the body that a client would send.
func bodyOf(r *tandemv1.PlanRequest) ([]byte, error) {
	var prompt any
	switch p := r.GetPrompt().(type) {
	case *tandemv1.PlanRequest_Body:
		return p.Body, nil
	case *tandemv1.PlanRequest_TokenIds:
		prompt = p.TokenIds.GetIds()
	case *tandemv1.PlanRequest_Text:
		prompt = p.Text
	default:
		return nil, errNoPrompt
	}
	return json.Marshal(struct {
		Model     string `json:"model"`
		Prompt    any    `json:"prompt"`
		MaxTokens uint32 `json:"max_tokens,omitzero"`
	}{r.GetModel(), prompt, r.GetMaxTokens()})
}

// failed returns an error of a plan with the code on which callers decide.
func failed(err error) error {
	code := codes.InvalidArgument
	if e, ok := errors.AsType[*planner.NoReplica](err); ok && !e.TooLarge {
		code = codes.Unavailable
	}
	if _, ok := errors.AsType[*planner.NoRoom](err); ok {
		code = codes.ResourceExhausted
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		code = status.FromContextError(err).Code()
	}
	return status.Error(code, err.Error())
}

func response(d *planner.Decision) (*tandemv1.PlanResponse, error) {
	text, err := json.Marshal(d)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	out := &tandemv1.PlanResponse{
		Mode: mode(d.Mode), Prefill: string(d.Prefill), Decode: string(d.Decode), Reason: d.Reason, Why: d.Why,
		PromptTokens: count(d.Tokens), Exact: d.Exact, AvailableTokens: count(d.Available),
		MatchedTokens: count(d.Matched),
		HeldTokens:    count(d.Held), PredictedTtftMs: d.TTFT, ExpectedOutputTokens: count(d.Output),
		Unknown: d.Unknown, DecisionJson: text,
		Blind: count(d.Blind), Truncated: count(d.Truncated), Guessed: d.Guessed,
	}
	for _, p := range d.Plans {
		out.Plans = append(out.Plans, plan(p))
	}
	for _, x := range d.Excluded {
		out.Excluded = append(out.Excluded,
			&tandemv1.Exclusion{Pool: x.Pool, Replica: string(x.Replica), With: string(x.With), Reason: x.Reason})
	}
	return readable(out), nil
}

func plan(p planner.Plan) *tandemv1.Plan {
	out := &tandemv1.Plan{
		Mode: mode(p.Mode), Prefill: string(p.Prefill), Decode: string(p.Decode), Total: p.Total,
	}
	for name, value := range p.Terms.All() {
		out.Terms = append(out.Terms, &tandemv1.Term{Name: name, Value: value})
	}
	return out
}

func mode(m planner.Mode) tandemv1.Mode {
	if m == planner.Local {
		return tandemv1.Mode_MODE_LOCAL
	}
	return tandemv1.Mode_MODE_SPLIT
}

// count returns 0 for unknown (-1).
func count(n int) uint32 { return uint32(min(max(n, 0), 1<<31)) }

// WatchDecisions streams records until the caller leaves.
func (s *router) WatchDecisions(
	r *tandemv1.WatchDecisionsRequest, stream tandemv1.Router_WatchDecisionsServer,
) error {
	if s.watch == nil {
		return status.Error(codes.Unimplemented, "decisions are not kept here")
	}
	var missed uint64 // lost before records that the filter removed
	err := s.watch(stream.Context(), func(rec Record, lost uint64) error {
		missed += lost
		if r.GetModel() != "" && r.GetModel() != rec.Model {
			return nil
		}
		d := decision(rec)
		d.Lost, missed = missed, 0
		return stream.Send(readable(d))
	})
	if err == nil {
		err = stream.Context().Err()
	}
	if _, isStatus := status.FromError(err); isStatus {
		return err
	}
	return status.FromContextError(err).Err()
}

func decision(r Record) *tandemv1.Decision {
	return &tandemv1.Decision{
		Id: r.ID, Time: timestamppb.New(r.Time), Model: r.Model, Mode: r.Mode, Prefill: r.Prefill, Decode: r.Decode,
		Reason: r.Reason, Outcome: r.Outcome, Status: count(r.Status), Json: r.JSON,
		PromptTokens: count(r.Prompt), AvailableTokens: ifKnown(r.Available), CapturedTokens: ifKnown(r.Captured),
		DeliveredTokens: ifKnown(r.Delivered),
		Blind:           count(r.Blind),
	}
}

// ifKnown returns nil for unknown (-1).
func ifKnown(n int) *uint32 {
	if n < 0 {
		return nil
	}
	return new(count(n))
}
