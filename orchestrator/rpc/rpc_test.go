package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/tandem-router/tandem/orchestrator/planner"
	"github.com/tandem-router/tandem/orchestrator/rpc/tandemv1"
	"github.com/tandem-router/tandem/scoring"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dial serves o in memory and returns a connection to it.
func dial(t *testing.T, o Options) *grpc.ClientConn {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	s := New(o)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	c := connect(t, "passthrough:memory",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return c
}

func connect(t *testing.T, target string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient(target,
		append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func split() *planner.Decision {
	return &planner.Decision{
		ID: "d1", Model: "m", Tokens: 100, Exact: true, Mode: planner.Split, Prefill: "p0", Decode: "d0",
		Reason: "p0 holds 64 tokens", Why: planner.WhyMatch,
		Available: 80, Matched: 64, Held: 16, TTFT: 12.5, Output: 256, Unknown: []string{"load of p1"},
		Plans: []planner.Plan{
			{
				Mode: planner.Split, Prefill: "p0", Decode: "d0", Total: 12.5,
				Terms: scoring.Terms{Prefill: 10, Transfer: 2.5},
			},
			{Mode: planner.Local, Decode: "d0", Total: 20, Terms: scoring.Terms{Prefill: 20}},
		},
		Excluded: []planner.Exclusion{{Pool: "pair", Replica: "p1", With: "d0", Reason: "breaker open"}},
	}
}

func TestPlan(t *testing.T) {
	var got string
	c := tandemv1.NewRouterClient(dial(t,
		Options{Explain: func(_ context.Context, body []byte) (*planner.Decision, error) {
			got = string(body)
			return split(), nil
		}}))
	for _, row := range []struct {
		name    string
		request *tandemv1.PlanRequest
		body    string
	}{
		{
			"ids",
			&tandemv1.PlanRequest{
				Model: "m", Prompt: &tandemv1.PlanRequest_TokenIds{TokenIds: &tandemv1.TokenIDs{Ids: []uint32{1, 2}}},
				MaxTokens: 9,
			},
			`{"model":"m","prompt":[1,2],"max_tokens":9}`,
		},
		{
			"text", &tandemv1.PlanRequest{Model: "m", Prompt: &tandemv1.PlanRequest_Text{Text: "say \"hi\""}},
			`{"model":"m","prompt":"say \"hi\""}`,
		},
		{
			"body", &tandemv1.PlanRequest{Prompt: &tandemv1.PlanRequest_Body{Body: []byte(`{ "messages": [] }`)}},
			`{ "messages": [] }`,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			r, err := c.Plan(t.Context(), row.request)
			if err != nil {
				t.Fatal(err)
			}
			if got != row.body {
				t.Errorf("explained %s, want %s", got, row.body)
			}
			if r.GetMode() != tandemv1.Mode_MODE_SPLIT || r.GetPrefill() != "p0" || r.GetDecode() != "d0" ||
				r.GetMatchedTokens() != 64 || r.GetPredictedTtftMs() != 12.5 {
				t.Errorf("got %v", r)
			}
			if len(r.GetPlans()) != 2 || r.GetPlans()[1].GetMode() != tandemv1.Mode_MODE_LOCAL {
				t.Fatalf("plans are %v", r.GetPlans())
			}
			if terms := r.GetPlans()[0].GetTerms(); !slices.ContainsFunc(terms, func(t *tandemv1.Term) bool {
				return t.GetName() == "transfer" && t.GetValue() == 2.5
			}) {
				t.Errorf("the terms of the pair are %v", terms)
			}
			if len(r.GetExcluded()) != 1 || r.GetExcluded()[0].GetWith() != "d0" {
				t.Errorf("excluded are %v", r.GetExcluded())
			}
			var d struct{ ID string }
			if err := json.Unmarshal(r.GetDecisionJson(), &d); err != nil || d.ID != "d1" {
				t.Errorf("decision_json is %s: %v", r.GetDecisionJson(), err)
			}
		})
	}
}

func TestPlanFails(t *testing.T) {
	text := &tandemv1.PlanRequest{Model: "m", Prompt: &tandemv1.PlanRequest_Text{Text: "x"}}
	for _, row := range []struct {
		name    string
		err     error
		request *tandemv1.PlanRequest
		want    codes.Code
	}{
		{"no prompt", nil, &tandemv1.PlanRequest{Model: "m"}, codes.InvalidArgument},
		{"bad body", errors.New("max_tokens is negative"), text, codes.InvalidArgument},
		{"no replica", fmt.Errorf("plan: %w", &planner.NoReplica{Pool: "decode"}), text, codes.Unavailable},
		{"too large", &planner.NoReplica{Pool: "decode", TooLarge: true}, text, codes.InvalidArgument},
		{"no room", &planner.NoRoom{Reason: "full"}, text, codes.ResourceExhausted},
		{"engine too slow", fmt.Errorf("tokenize: %w", context.DeadlineExceeded), text, codes.DeadlineExceeded},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := tandemv1.NewRouterClient(dial(t,
				Options{Explain: func(context.Context, []byte) (*planner.Decision, error) { return nil, row.err }}))
			if _, err := c.Plan(t.Context(), row.request); status.Code(err) != row.want {
				t.Errorf("got %v, want %v", err, row.want)
			}
		})
	}
}

func TestWithoutOptions(t *testing.T) {
	c := tandemv1.NewRouterClient(dial(t, Options{}))
	if _, err := c.Plan(t.Context(), &tandemv1.PlanRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("Plan gives %v", err)
	}
	w, err := c.WatchDecisions(t.Context(), &tandemv1.WatchDecisionsRequest{})
	if err == nil {
		_, err = w.Recv()
	}
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("WatchDecisions gives %v", err)
	}
}

// feed sends records, then waits for the caller to leave; left is closed then.
func feed(records []Record, lost []uint64, left chan<- error) Options {
	return Options{Watch: func(ctx context.Context, send func(Record, uint64) error) error {
		for i, r := range records {
			if err := send(r, lost[i]); err != nil {
				return err
			}
		}
		<-ctx.Done()
		left <- ctx.Err()
		return ctx.Err()
	}}
}

func TestWatchDecisions(t *testing.T) {
	at := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	records := []Record{
		{
			ID: "1", Time: at, Model: "a", Mode: "split", Prefill: "p0", Decode: "d0", Outcome: "ok", Status: 200,
			JSON: []byte(`{}`),
		},
		{ID: "2", Model: "b"},
		{ID: "3", Model: "a"},
	}
	lost := []uint64{0, 5, 2}
	for model, want := range map[string][]string{"": {"1+0", "2+5", "3+2"}, "a": {"1+0", "3+7"}} {
		left := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		w, err := tandemv1.NewRouterClient(dial(t, feed(records, lost, left))).WatchDecisions(ctx,
			&tandemv1.WatchDecisionsRequest{Model: model})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for range want {
			d, err := w.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if d.GetId() == "1" && (!d.GetTime().AsTime().Equal(at) || d.GetPrefill() != "p0" ||
				d.GetStatus() != 200 || string(d.GetJson()) != "{}") {
				t.Errorf("got %v", d)
			}
			got = append(got, fmt.Sprintf("%s+%d", d.GetId(), d.GetLost()))
		}
		if !slices.Equal(got, want) {
			t.Errorf("model %q: got %v, want %v", model, got, want)
		}
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("the feed ended with %v", err)
		}
	}
}

// A text with a byte that is no UTF-8, as a request's id or an engine's words may have, ends nobody's stream
// or plan.
func TestTextThatIsNoUTF8(t *testing.T) {
	const bad, mended = "b\xff\xfed", "b\uFFFDd"
	records := []Record{{ID: "1", Reason: bad, Model: bad}, {ID: "2", Outcome: bad}, {ID: "3"}}
	left := make(chan error, 1)
	o := feed(records, []uint64{0, 0, 0}, left)
	o.Explain = func(context.Context, []byte) (*planner.Decision, error) {
		d := split()
		d.Reason = bad
		d.Plans = []planner.Plan{{Prefill: bad}}
		d.Excluded = []planner.Exclusion{{Pool: "decode", Reason: bad}}
		return d, nil
	}
	router := tandemv1.NewRouterClient(dial(t, o))
	ctx, cancel := context.WithCancel(t.Context())
	w, err := router.WatchDecisions(ctx, &tandemv1.WatchDecisionsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1 " + mended + " " + mended, "2  ", "3  "} {
		d, err := w.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if got := d.GetId() + " " + d.GetReason() + " " + d.GetModel(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	cancel()
	<-left
	p, err := router.Plan(t.Context(),
		&tandemv1.PlanRequest{Prompt: &tandemv1.PlanRequest_Body{Body: []byte("{}")}})
	if err != nil {
		t.Fatal(err)
	}
	if p.GetReason() != mended || p.GetPlans()[0].GetPrefill() != mended ||
		p.GetExcluded()[0].GetReason() != mended {
		t.Errorf("got %v", p)
	}
}

// What is unknown is absent, which zero is not.
func TestDecisionsTellTheTruth(t *testing.T) {
	for _, r := range []Record{
		{Prompt: 900, Available: 800, Captured: 640, Delivered: 656, Blind: 2},
		{Prompt: 900, Available: 0, Captured: 0, Delivered: 0},
		{Prompt: 900, Available: 800, Captured: -1, Delivered: -1, Blind: 1},
		{Prompt: 900, Available: -1, Captured: -1, Delivered: 0},
	} {
		d := decision(r)
		if d.GetPromptTokens() != 900 || d.GetBlind() != uint32(r.Blind) {
			t.Errorf("got %v of %+v", d, r)
		}
		for _, x := range []struct {
			name string
			got  *uint32
			want int
		}{
			{"available", d.AvailableTokens, r.Available},
			{"captured", d.CapturedTokens, r.Captured},
			{"delivered", d.DeliveredTokens, r.Delivered},
		} {
			if (x.got == nil) != (x.want < 0) || x.got != nil && *x.got != uint32(x.want) {
				t.Errorf("%s: got %v, want %d, in %+v", x.name, x.got, x.want, r)
			}
		}
	}
	p, err := response(&planner.Decision{Blind: 3, Truncated: 2, Guessed: true})
	if err != nil || p.GetBlind() != 3 || p.GetTruncated() != 2 || !p.GetGuessed() {
		t.Errorf("got %v, %v", p, err)
	}
}

func TestHealth(t *testing.T) {
	var ready atomic.Bool
	services := map[string]func() bool{"": ready.Load, "tandem.v1.Router": ready.Load}
	s := &health{services: services, every: time.Millisecond}
	l := bufconn.Listen(1 << 16)
	g := grpc.NewServer()
	healthv1.RegisterHealthServer(g, s)
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	defer func() { g.Stop(); <-done }()
	c := healthv1.NewHealthClient(connect(
		t, "passthrough:memory",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
	))

	w, err := c.Watch(t.Context(), &healthv1.HealthCheckRequest{Service: "tandem.v1.Router"})
	if err != nil {
		t.Fatal(err)
	}
	for _, now := range []bool{false, true, false} {
		ready.Store(now)
		want := healthv1.HealthCheckResponse_NOT_SERVING
		if now {
			want = healthv1.HealthCheckResponse_SERVING
		}
		r, err := c.Check(t.Context(), &healthv1.HealthCheckRequest{})
		if err != nil || r.GetStatus() != want {
			t.Errorf("Check gives %v, %v, want %v", r, err, want)
		}
		if r, err := w.Recv(); err != nil || r.GetStatus() != want {
			t.Errorf("Watch gives %v, %v, want %v", r, err, want)
		}
	}
	if _, err := c.Check(t.Context(),
		&healthv1.HealthCheckRequest{Service: "other"}); status.Code(err) != codes.NotFound {
		t.Errorf("Check of another service gives %v", err)
	}
	if r, err := c.List(t.Context(), &healthv1.HealthListRequest{}); err != nil || len(r.GetStatuses()) != 2 {
		t.Errorf("List gives %v, %v", r, err)
	}
}

// One real port speaks HTTP/1.1 and gRPC.
func TestHandlerSharesThePort(t *testing.T) {
	g := New(Options{Explain: func(context.Context, []byte) (*planner.Decision, error) { return split(), nil }})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	plain := http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto, " ", r.URL.Path) },
	)
	s := &http.Server{Handler: Handler(g, plain), Protocols: new(http.Protocols), ReadHeaderTimeout: time.Second}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	defer func() {
		s.Close()
		g.Stop()
		<-done
	}()
	addr := l.Addr().String()

	h := &http.Client{Transport: &http.Transport{}}
	defer h.CloseIdleConnections()
	if got := get(t, h, "http://"+addr+"/metrics"); got != "HTTP/1.1 /metrics" {
		t.Errorf("HTTP/1.1 gives %q", got)
	}
	two := new(http.Protocols)
	two.SetUnencryptedHTTP2(true)
	h2 := &http.Client{Transport: &http.Transport{Protocols: two}}
	defer h2.CloseIdleConnections()
	if got := get(t, h2, "http://"+addr+"/readyz"); got != "HTTP/2.0 /readyz" {
		t.Errorf("HTTP/2 gives %q", got)
	}

	c := connect(t, addr)
	r, err := tandemv1.NewRouterClient(c).Plan(t.Context(),
		&tandemv1.PlanRequest{Prompt: &tandemv1.PlanRequest_Text{Text: "x"}})
	if err != nil || r.GetDecode() != "d0" {
		t.Errorf("Plan gives %v, %v", r, err)
	}
	if names := listed(t, c); !slices.Contains(names, "tandem.v1.Router") ||
		!slices.Contains(names, "grpc.health.v1.Health") {
		t.Errorf("reflection lists %v", names)
	}
	c.Close()
}

func get(t *testing.T, c *http.Client, url string) string {
	t.Helper()
	r, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func listed(t *testing.T, c *grpc.ClientConn) []string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := reflectionv1.NewServerReflectionClient(c).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(
		&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}},
	); err != nil {
		t.Fatal(err)
	}
	r, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, one := range r.GetListServicesResponse().GetService() {
		names = append(names, one.GetName())
	}
	return names
}

// The largest request is the one that the options say, no constant of ours.
func TestLargestRequest(t *testing.T) {
	explain := func(context.Context, []byte) (*planner.Decision, error) { return split(), nil }
	c := tandemv1.NewRouterClient(dial(t, Options{MaxRequest: 5 << 20, Explain: explain}))
	for bytes, want := range map[int]codes.Code{5 << 20: codes.ResourceExhausted, 9 << 19: codes.OK} {
		prompt := &tandemv1.PlanRequest_Text{Text: strings.Repeat("a", bytes)}
		_, err := c.Plan(t.Context(), &tandemv1.PlanRequest{Model: "m", Prompt: prompt})
		if status.Code(err) != want {
			t.Errorf("%d bytes: %v, want %v", bytes, err, want)
		}
	}
}
