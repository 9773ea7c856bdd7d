package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/canary"
	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/setup"
)

// mostPairs limits how many pairs are tried. In a fleet with more pairs, every rank is tried at least once on
// its side.
const mostPairs = 32

// handoff is the result of one prompt between two ranks.
type handoff struct {
	from, to *rank
	verdict  canary.Verdict
	foreign  *connector.Foreign // the prefill engine speaks another protocol
	speed    *speed             // nil: it was not timed
	strange  []string           // unknown keys of the transfer params
	tp       int                // tensor-parallel size of the prefill engine, 0 unknown
}

// handoffs are the handoffs between pairs of ranks.
type handoffs []*handoff

func (h *handoff) String() string { return h.from.name() + " to " + h.to.name() }

// handOver tries the pairs. The pairs of one decode rank are tried in turn, so that the rank's counters
// measure one handoff at a time.
func (f *fleet) handOver(ctx context.Context) {
	by := map[*rank][]*handoff{}
	for _, h := range f.handoffs {
		by[h.to] = append(by[h.to], h)
	}
	var wg sync.WaitGroup
	for _, own := range by {
		wg.Go(func() {
			for _, h := range own {
				f.say(h.to.name(), "handing a prompt over from %s", h.from.name())
				h.try(ctx, f)
			}
		})
	}
	wg.Wait()
}

// pairs chooses the pairs to try: only ranks that compute prompts, and only pairs that Tandem would form.
func (f *fleet) pairs() []*handoff {
	prefill, decode := f.able(replica.Prefill), f.able(replica.Decode)
	var all []*handoff
	for _, p := range prefill {
		for _, d := range decode {
			if p.fits(d) {
				all = append(all, &handoff{from: p, to: d})
			}
		}
	}
	if len(all) <= mostPairs {
		return all
	}
	var some []*handoff
	seen := map[*rank]bool{}
	for _, h := range all { // first pairs of two untried ranks, then pairs with one untried rank
		if !seen[h.from] && !seen[h.to] {
			seen[h.from], seen[h.to] = true, true
			some = append(some, h)
		}
	}
	for _, h := range all {
		if !seen[h.from] || !seen[h.to] {
			seen[h.from], seen[h.to] = true, true
			some = append(some, h)
		}
	}
	return some
}

// legsOnly reports whether the engine may get nothing but decode legs.
func legsOnly(s *server) bool {
	return s.role == replica.Decode && s.fleet.connector().Traits().NoPlain
}

// able returns the ranks of a pool that answered a prompt of token ids, or that may not get one.
func (f *fleet) able(role replica.Role) []*rank {
	var all []*rank
	for _, s := range f.servers {
		for _, r := range s.ranks {
			if s.role == role && (legsOnly(s) || r.trial != nil && r.trial.err == nil) {
				all = append(all, r)
			}
		}
	}
	return all
}

// handed is the result of one handoff.
type handed struct {
	failed         *canary.Verdict // why the prefill gave nothing to hand over
	prefill, split canary.Answer
	before, after  canary.Counters // of the decode rank
	took           time.Duration   // the decode leg
}

// connector returns the configured connector.
func (f *fleet) connector() connector.Connector {
	at := connector.Ports{Handshake: f.cfg.Connector.HandshakePort, Notify: f.cfg.Connector.NotifyPort}
	if named := connector.Named(f.cfg.Connector.Type, at); named != nil {
		return named
	}
	return connector.NIXL{}
}

// kvConnector returns the connector that the engines should have.
func (f *fleet) kvConnector() setup.KV { return setup.Of(f.connector().Traits()) }

// wanted is the connector that an engine should have.
func wanted(s *server) setup.KV { return s.fleet.kvConnector() }

// located returns a rank as the router would know it, with the address of its blocks if the connector needs
// the address.
func (f *fleet) located(ctx context.Context, r *rank) (replica.Replica, error) {
	is, of := r.replica(), r.s
	if !f.connector().Traits().Bootstrap {
		return is, nil
	}
	way := engine.Options{DialTimeout: f.cfg.Timeouts.Connect}
	port := cmp.Or(of.cfg.BootstrapPort, f.cfg.Connector.BootstrapPort)
	all, err := engine.Bootstrap(ctx, way, is.Host, port, of.ranks[0].n, len(of.ranks))
	if err != nil {
		return is, fmt.Errorf("its bootstrap server is not known: %w", err)
	}
	is.Facts.KV = all[slices.Index(of.ranks, r)]
	return is, nil
}

// hand sends both legs of a prompt. Their id is fresh: with push, an id pairs the legs.
//
// Long: the two legs in their order.
func (h *handoff) hand(ctx context.Context, f *fleet, q *canary.Question) (got handed) {
	id := fmt.Sprintf("tandem-doctor-%016x", rand.Uint64())
	con := f.connector()
	none := func(err error) handed {
		got.failed = &canary.Verdict{Kind: canary.Failed, Prompt: len(q.IDs), Leg: "prefill", Why: err.Error()}
		return got
	}
	q.NoParams = con.Traits().NoParams
	from, err := f.located(ctx, h.from)
	if err != nil {
		return none(err)
	}
	to := h.to.replica()
	if con.Traits().NamesDecode { // the prefill engine would stand still where nobody listens
		at, way := f.cfg.Connector, engine.Options{DialTimeout: f.cfg.Timeouts.Connect}
		if err := engine.Listens(ctx, way, to.Host, at.HandshakePort, at.NotifyPort); err != nil {
			return none(fmt.Errorf("%s does not listen for prefill engines (connector.handshake_port, "+
				"notify_port): %w", h.to.name(), err))
		}
	}
	pair := connector.Pair{
		Prefill: from, Decode: to, AttemptID: id, PromptTokens: len(q.IDs), IDs: true,
	}
	leg1, err := edited(q.Prefill(), id, func(leg *connector.Leg) error {
		return con.EditPrefill(leg, pair)
	})
	if err != nil {
		return none(err)
	}
	got.prefill = h.from.send(ctx, leg1, id)
	if v := q.JudgePrefill(got.prefill); v.Kind == canary.Failed {
		got.failed = &v
		return got
	}
	params := canary.Params(got.prefill.Body)
	h.strange, h.tp = connector.Strange(params), tensorParallel(params)
	reply := connector.NewReply(params, time.Now(), len(q.IDs), h.from.blockSize())
	leg2, err := edited(q.Decode(), id, func(leg *connector.Leg) error {
		return con.EditDecode(leg, pair, reply, connector.Use{Now: time.Now()})
	})
	if err != nil {
		h.foreign, _ = errors.AsType[*connector.Foreign](err)
		return none(err)
	}
	got.before = h.to.counters(ctx)
	began := time.Now()
	got.split = h.to.send(ctx, leg2, id)
	got.took = time.Since(began)
	if got.split.Err != nil && con.Traits().Rescue { // it may wait for ever
		h.from.send(ctx, leg1, id)
	}
	got.after = h.to.counters(ctx)
	return got
}

// try hands one prompt over and judges the result.
func (h *handoff) try(ctx context.Context, f *fleet) {
	engines := canary.Between(h.from.engine(), h.to.engine())
	rnd := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	q := canary.New(engines, rnd)
	if f.connector().Traits().Order == connector.Shared { // LMCache keeps chunks of 256 tokens
		q = canary.NewOf(engines, max(len(q.IDs), 3*256+1), rnd)
	}
	got := h.hand(ctx, f, q)
	if got.failed != nil {
		h.verdict = *got.failed
		return
	}
	alone := h.to
	if f.connector().Traits().NoPlain {
		alone = h.from
	}
	likely := func() canary.Answer { return alone.send(ctx, q.Likely(), "") }
	h.verdict = q.Judge(got.prefill, got.split, alone.send(ctx, q.Own(), ""), likely, got.before, got.after)
}

// edited returns a body after the connector's edit.
func edited(body []byte, id string, edit func(*connector.Leg) error) ([]byte, error) {
	return openai.EditOwn(body,
		func(e *openai.Edit) error { return edit(&connector.Leg{Body: e, RequestID: id}) })
}

// send asks the rank for a completion, under an id or "".
func (r *rank) send(ctx context.Context, body []byte, id string) canary.Answer {
	ctx, cancel := context.WithTimeout(ctx, handTime)
	defer cancel()
	req := r.completion(body)
	req.ID = id
	resp, err := r.s.client.Do(ctx, req)
	if err != nil {
		return canary.Answer{Err: err}
	}
	defer resp.Close()
	raw, err := resp.ReadAll(1 << 20)
	return canary.Answer{Status: resp.Status, Body: raw, Err: err}
}

// completion returns a request for this rank, and no other rank of its server.
func (r *rank) completion(body []byte) *engine.Request {
	req := &engine.Request{Method: http.MethodPost, Path: "/v1/completions", Body: body}
	if len(r.s.ranks) > 1 { // the header counts from the server's first rank
		rank := strconv.Itoa(r.n - r.s.ranks[0].n)
		req.Header = append(req.Header, engine.Field{Key: "X-data-parallel-rank", Value: rank})
	}
	return req
}

// counters reads the counters of a rank that a transfer changes.
func (r *rank) counters(ctx context.Context) canary.Counters {
	status, body, _, err := r.s.get(ctx, "/metrics")
	if err != nil || status != http.StatusOK {
		return canary.Unknown()
	}
	m, err := engine.ParseMetrics(body)
	rank, there := m.Ranks[r.n]
	if err != nil || !there {
		return canary.Unknown()
	}
	c := rank.Counters
	return canary.Counters{
		ExternalHits: c.ExternalHits, FailedTransfers: c.NIXLFailedTransfers, Bytes: m.Loads[r.n].Reads.Bytes,
	}
}
