package orchestrator

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/picker"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// A gateway may send requests itself, and ask the router only for the destination. A pick plans and books as
// if this router sent the request. A pick keeps the booking until the answer has passed, the client has left,
// or a time limit ends the request. docs/gateway.md says what a pick cannot do.

// Gateway sends a picked request to its engines, and passes the answer to the router. It belongs to the
// goroutine of the request.
type Gateway interface {
	// Allows reports whether the gateway allows the engine at this host:port.
	Allows(role replica.Role, address string) bool
	// Send tells the gateway the destination. It is called at most once.
	Send(to *picker.Destination) error
	// Next waits for the next part of the answer. There is none after a part with End. The wait ends with ctx;
	// nothing is lost then, and Next may be called again. An error before the end of ctx means that the gateway
	// or the client has left.
	Next(ctx context.Context) (picker.Part, error)
	// Give sends the client the bytes for the newest part.
	Give(body []byte) error
}

// pick serves a request of a gateway. If the request generates nothing, the router answers it itself, by
// others.
func (t *front) pick(w http.ResponseWriter, r *http.Request, g Gateway, others http.Handler) {
	path := r.URL.Path
	switch kind := kindOf(path); {
	case r.Method != http.MethodPost:
	case kind != 0:
		t.handle(path, func(ctx context.Context, q *request) *failure { return pickKnown(ctx, q, kind, g) })(w, r)
		return
	case slices.Contains(generatingPaths, path):
		t.handle(path, func(ctx context.Context, q *request) *failure { return pickWhole(ctx, q, g) })(w, r)
		return
	}
	others.ServeHTTP(w, r)
}

// kindOf returns the kind of this path; 0 if there is none.
func kindOf(path string) openai.Kind {
	for kind := openai.Chat; kind <= openai.Responses; kind++ {
		if kind.Path() == path {
			return kind
		}
	}
	return 0
}

// pickKnown picks for a request whose body the router can parse.
func pickKnown(ctx context.Context, q *request, kind openai.Kind, g Gateway) *failure {
	req, f := q.parse(kind)
	if f != nil {
		return f
	}
	j := q.newJob(req, 0)
	if f = j.tokenize(ctx); f == nil {
		f = recount(j)
	}
	if f == nil {
		j.prepare()
		f = (&pick{j: j, g: g, kind: kind}).serve(ctx, q, req.Raw)
	}
	return endPick(q, j, f)
}

// pickWhole picks a decode replica for a generating request of another API.
func pickWhole(ctx context.Context, q *request, g Gateway) *failure {
	p, f := q.readPassthrough()
	if f != nil {
		return f
	}
	j := passedJob(q, p)
	j.plan.Quiet = !p.stream
	return endPick(q, j, (&pick{j: j, g: g}).serve(ctx, q, p.body))
}

// endPick records the end of a pick. If the client already has an engine's own answer, the failure is
// recorded, and nothing more is written.
func endPick(q *request, j *job, f *failure) *failure {
	q.outcome.mode = j.rec.Mode
	finish(j, f, nil)
	if f == nil || !f.delivered {
		return f
	}
	q.outcome.result, q.outcome.status = f.name(), f.reply.status
	q.traceFailure(f)
	if f.reply.status >= http.StatusInternalServerError {
		logFailure(q, f)
	}
	return nil
}

// unsidecarred says why the routing sidecar of a decode engine cannot split a request that this router could
// split, "" if the sidecar can split the request. The sidecar sends the client's own body on both legs. On
// the first leg the sidecar changes only the number of tokens and the stream.
func unsidecarred(req *openai.Request) string {
	least, _ := req.Number("min_tokens")
	switch {
	case req.Kind != openai.Chat && req.Kind != openai.Completions:
		return "a routing sidecar splits only chats and completions"
	case req.Batched:
		return "a routing sidecar splits no list of prompts"
	case least > 1:
		return "a routing sidecar keeps min_tokens for its prefill"
	}
	return ""
}

// pick is a request that a gateway sends.
type pick struct {
	j    *job
	g    Gateway
	kind openai.Kind // 0 if the answer is not read

	barred bool       // the gateway allows no decode replica that serves the model
	keptBy replica.ID // the only decode replica that has a stored response; "": any replica will do
	h      *handoff   // holds the booking and the engines
	sentAt time.Time
	handed bool // the prefill has ended, or should have ended
	lost   bool // an engine answers that has no booking
	answer pickedAnswer
}

// serve books, sends, and follows the answer to its end. body is the body for the engines.
func (p *pick) serve(ctx context.Context, q *request, body []byte) (f *failure) {
	if body, f = p.findKeeper(ctx, q, body); f != nil {
		return f
	}
	defer func() { // also after a panic
		if p.h != nil {
			p.h.end()
		}
	}()
	if f = p.book(ctx); f != nil {
		return f
	}
	ctx = p.h.clock.begin(ctx)
	b := p.h.b
	for _, at := range []*replica.Replica{&b.Prefill, &b.Decode} {
		if at.ID != "" && p.h.acquire(at) == nil {
			return p.h.left(at)
		}
	}
	if f = p.send(q, body); f == nil {
		f = p.follow(ctx)
	}
	p.settle(f)
	return f
}

// findKeeper finds the replica that has the response which the request continues. It returns the body for the
// engines.
func (p *pick) findKeeper(ctx context.Context, q *request, body []byte) ([]byte, *failure) {
	id := previousResponse(body)
	if id == "" {
		return body, nil
	}
	to := holder(ctx, q, id)
	if to == nil {
		return body, nil // the engine will refuse the unknown response
	}
	if p.keptBy = to.Member.ID; to.Member.Draining {
		return nil, keeperDrains()
	}
	j := p.j
	if model := modelAt(q, to, j.plan.Model); model != j.plan.Model {
		j.plan.Model, j.rec.Model = model, model
		return openai.WithModel(body, model), nil
	}
	return body, nil
}

// book gets a plan with replicas that the gateway allows. A replica that joined while the request waited for
// room may be forbidden. Then another plan is made.
func (p *pick) book(ctx context.Context) *failure {
	j := p.j
	if j.connect.Traits().NoPlain { // a routing sidecar sends the whole request to decode where a prefill fails
		return unsplit("a routing sidecar may send it whole to a decode engine")
	}
	if j.req != nil && j.whole == "" {
		if j.whole = unsidecarred(j.req); j.whole != "" {
			j.plan.SplitOK, j.plan.LocalOK = false, true
		}
	}
	j.plan.Pieces = false // a gateway does not send a prompt in pieces
	j.plan.Pulls = false  // a gateway writes the legs itself
	j.plan.StoreUnit = 0  // and the report of the decode engine may not reach the router
	p.restrict()
	for {
		b, f := j.book(ctx)
		switch {
		case f != nil && f.kind == kindNoReplica && p.barred:
			return noneAllowed(j.plan.Model)
		case f != nil:
			return f
		}
		p.h = &handoff{j: j, b: b, attemptID: j.rec.ID}
		p.restrict()
		avoid := &j.plan
		if !slices.Contains(avoid.AvoidDecode, b.Decode.ID) && !slices.Contains(avoid.AvoidPrefill, b.Prefill.ID) {
			j.attempts.tries = 1
			p.note(b)
			return nil
		}
		p.h.end()
	}
}

// note writes the plan into the record.
func (p *pick) note(b *planner.Booking) {
	if p.j.req == nil {
		noteWhole(p.j, b, "")
		return
	}
	recordPlan(p.j, b)
	p.j.rec.Attempts = p.j.attempts.tries
}

// restrict makes the plan avoid the replicas that the gateway does not allow. A gateway that allows no
// prefill replica at all may only list destinations of requests, and prefill replicas are not among them.
func (p *pick) restrict() {
	var prefills, decodes []replica.ID
	var some, serves, bars bool
	for _, e := range p.j.fleet.Endpoints() {
		m := &e.Member
		allowed := p.g.Allows(m.Role, hostPort(m))
		if m.Role == replica.Decode && m.Serves(p.j.plan.Model) {
			serves = serves || allowed
			bars = bars || !allowed
		}
		switch {
		case m.Role == replica.Prefill && allowed:
			some = true
		case m.Role == replica.Prefill:
			prefills = append(prefills, m.ID)
		case !allowed || p.keptBy != "" && p.keptBy != m.ID:
			decodes = append(decodes, m.ID)
		}
	}
	if !some {
		prefills = nil
	}
	p.j.plan.AvoidPrefill, p.j.plan.AvoidDecode = prefills, decodes
	p.barred = bars && !serves
}

// noneAllowed returns the failure of a request if the gateway allows no decode replica that serves its model.
func noneAllowed(model string) *failure {
	return refuse(kindNoReplica, site{
		phase: phasePlan,
		err: errors.New("the gateway's subset has none of the decode replicas that serve the model: let its " +
			"InferencePool select the pods that discovery selects"),
		words: "The gateway allows none of the decode replicas that serve the model `" + model + "`.",
	})
}

// hostPort returns the address of r for gateways and routing sidecars. A gateway may reach a decode engine
// through a routing sidecar. Sidecars ask prefill engines themselves.
func hostPort(r *replica.Replica) string {
	if r.Role == replica.Decode && r.GatewayPort != 0 {
		return net.JoinHostPort(r.Host, strconv.Itoa(r.GatewayPort))
	}
	_, address, _ := strings.Cut(r.URL, "://")
	address, _, _ = strings.Cut(address, "/")
	return address
}
