package orchestrator

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// mostGiveBacks limits how many run at once. Further leases end by themselves.
const mostGiveBacks = 64

// giveBacksOf returns how many may run at once if this number of clients may be connected; 0 clients is no
// limit. Each needs its own connection.
func giveBacksOf(clients int) int {
	if clients == 0 {
		return mostGiveBacks
	}
	return min(mostGiveBacks, max(4, clients/8))
}

// giveBack frees prefilled blocks that no decode leg will read. Otherwise the prefill replica keeps them for
// its whole lease of 30 s.
//
// If the API layer of a decode engine refuses a request with transfer params, it tells the prefill engine to
// free the blocks, and computes nothing (seen on vLLM 0.32: vllm-wire.md, section 0). So the params are sent
// in a request for a model that does not exist. This request never reads the blocks, so their age does not
// matter. It runs in the background, since the client does not need its result. avoid is the decode replica
// that could not be reached; "" for none.
func (e *env) giveBack(
	con connector.Connector, pair connector.Pair, reply *connector.Reply, avoid replica.ID,
	timeout time.Duration,
) {
	if !con.Traits().Returns(reply) {
		return
	}
	select {
	case e.giveBacks.places <- struct{}{}:
	default:
		e.m.Handoffs.GiveBack.WithLabelValues("too_many").Inc()
		return
	}
	e.giveBacks.running.Go(func() { // joined by Run
		defer func() { <-e.giveBacks.places }()
		// It intentionally outlives the request, and ends with the timeout.
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		result := "broken"
		e.panics.Contain("give-back", func() { result = e.freeBlocks(ctx, con, pair, reply, avoid) })
		e.m.Handoffs.GiveBack.WithLabelValues(result).Inc()
		if result != "freed" {
			e.log.Warn("lease was not given back; it will run out by itself", "prefill", string(pair.Prefill.ID),
				"result", result)
		}
	})
}

// giveBackNow frees the blocks of a canary that no leg will read, and waits for the end.
func (e *env) giveBackNow(
	ctx context.Context, con connector.Connector, pair connector.Pair, reply *connector.Reply, avoid replica.ID,
) {
	e.m.Handoffs.GiveBack.WithLabelValues(e.freeBlocks(ctx, con, pair, reply, avoid)).Inc()
}

// askOnce makes a decode engine ask for the blocks of a cut leg, in case the cut engine has not asked at all.
// A second prefill leg under this id would leave blocks of the first one held for ever (vLLM 0.32,
// record_send_reqs). askOnce reports whether the engine asks. A dead engine asks nothing, also not once more.
func (e *env) askOnce(ctx context.Context, con connector.Connector, pair connector.Pair) bool {
	to := e.fleet.Endpoint(pair.Decode.ID)
	if to == nil || !to.Up() || e.freeBlocks(ctx, con, pair, nil, "") != "freed" {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(askTime):
		return true
	}
}

// askTime is enough for a question to get from a decode engine to a prefill engine.
const askTime = time.Second

// noSuchModel is a name that no engine serves.
const noSuchModel = `"tandem-give-back-no-such-model"`

// freer returns the decode replica that frees blocks; nil if there is none. First comes the replica of the
// pair, since it has made a handshake with the prefill replica. Then come other replicas, and last a replica
// that is being drained. An incompatible replica, for example of another model, could not make a handshake.
func freer(of *fleet.Fleet, pair *connector.Pair, avoid replica.ID) *fleet.Endpoint {
	to := of.Endpoint(pair.Decode.ID)
	if to != nil && to.Up() && !to.Member.Draining && to.Member.ID != avoid {
		return to
	}
	return of.AnyDecode(func(r *fleet.Endpoint) bool {
		return r.Member.ID == avoid || planner.Incompatible(&pair.Prefill, &r.Member) != ""
	})
}

// freeBlocks frees the blocks through a decode replica, and returns the result for metrics.
func (e *env) freeBlocks(
	ctx context.Context, con connector.Connector, pair connector.Pair, reply *connector.Reply, avoid replica.ID,
) string {
	to := freer(e.fleet, &pair, avoid)
	if to == nil {
		return "no_decode"
	}
	to.Begin()
	defer to.End()
	pair.Decode = to.Member
	body, err := openai.Parse(openai.Completions,
		[]byte(`{"model":`+noSuchModel+`,"prompt":[0],"max_tokens":1}`), openai.Limits{})
	if err != nil {
		return "broken"
	}
	edit := body.Edit()
	leg := &connector.Leg{Body: edit, RequestID: pair.AttemptID + "-free"}
	switch err := con.EditDecode(leg, pair, reply, connector.Use{Now: time.Now(), GiveBack: true}); {
	case errors.Is(err, connector.ErrTaken):
		return "used"
	case err != nil:
		return "bad_params" // bad params must not reach an engine in this way either
	}
	resp, err := to.Do(ctx, &engine.Request{
		Method: http.MethodPost, Path: openai.Completions.Path(), Body: edit.Append(nil), ID: leg.RequestID,
		Loads: leg.Loads,
	})
	if err != nil {
		return "unreachable"
	}
	defer resp.Close()
	_, _ = resp.ReadAll(1 << 20) // read only so that the connection can be used again
	if resp.Status != http.StatusNotFound && resp.Status != http.StatusBadRequest {
		return "not_refused"
	}
	return "freed"
}
