package trials

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/tandem-router/tandem/connector"
	"github.com/tandem-router/tandem/internal/canary"
	"github.com/tandem-router/tandem/internal/engine"
	"github.com/tandem-router/tandem/internal/openai"
	"github.com/tandem-router/tandem/orchestrator/fleet"
	"github.com/tandem-router/tandem/orchestrator/outlier"
)

// countersOf reads what a decode engine counts of transfers, over all its ranks.
func countersOf(ctx context.Context, d *fleet.Endpoint) canary.Counters {
	m, err := d.Scrape(ctx)
	if err != nil {
		return canary.Unknown()
	}
	var c canary.Counters
	for i := range m.Ranks {
		c.ExternalHits += m.Ranks[i].Counters.ExternalHits
		c.FailedTransfers += m.Ranks[i].Counters.NIXLFailedTransfers
	}
	return c
}

// errStuck is the end of a decode leg that was to load blocks and did not answer in a time in which its
// engine answers ten times by itself.
var errStuck = errors.New("the blocks did not arrive in time")

// hand sends the two legs of a canary, with the same guards as a client's request: its transfer
// parameters go through a [connector.Reply]. The second has until limit after it was sent.
func (t *Trials) hand(
	ctx context.Context, q *canary.Question, p, d *fleet.Endpoint, limit time.Duration,
) (first, decode canary.Answer) {
	h := &canaryHandoff{
		t: t, q: q, p: p, d: d, in: t.o.Settings(), stalled: p.StalledFor(time.Now()),
		pair: connector.Pair{
			Prefill: p.Member, Decode: d.Member, AttemptID: q.Salt, IDs: true, PromptTokens: len(q.IDs),
		},
	}
	q.NoParams = h.in.Connector.Traits().NoParams
	p.Begin()
	defer p.End()
	first, reply := h.prefill(ctx)
	if reply == nil {
		return first, decode
	}
	if decode = h.decode(ctx, reply, limit); decode.Err != nil {
		p.LentUntil(time.Now().Add(h.in.Lease))
	}
	return first, decode
}

// canaryHandoff is one canary on its way over a pair.
type canaryHandoff struct {
	t       *Trials
	q       *canary.Question
	p, d    *fleet.Endpoint
	in      Settings
	pair    connector.Pair
	stalled time.Duration // how long the prefill engine had stood still before
}

// prefill sends the first leg. The reply is nil if the leg gave nothing to hand over.
func (h *canaryHandoff) prefill(ctx context.Context) (canary.Answer, *connector.Reply) {
	leg, err := canaryLeg(h.q.Prefill(), h.q.Salt,
		func(l *connector.Leg) error { return h.in.Connector.EditPrefill(l, h.pair) })
	if err != nil {
		return canary.Answer{Err: err}, nil
	}
	first := h.t.ask(ctx, h.p, h.q, leg, h.q.Salt)
	if h.q.JudgePrefill(first).Kind == canary.Failed {
		return first, nil
	}
	return first, connector.NewReply(canary.Params(first.Body), time.Now(), len(h.q.IDs),
		h.p.Member.Facts.BlockSize)
}

// decode sends the second leg, and gives the blocks back where it did not reach its engine.
func (h *canaryHandoff) decode(
	ctx context.Context, reply *connector.Reply, limit time.Duration,
) canary.Answer {
	leg, err := canaryLeg(h.q.Decode(), h.q.Salt,
		func(l *connector.Leg) error { return h.in.Connector.EditDecode(l, h.pair, reply, h.use()) })
	if err != nil {
		h.giveBack(ctx, reply)
		return canary.Answer{Err: err}
	}
	leg.Last = func() error {
		if reply.Expired(h.use()) {
			return connector.ErrExpired
		}
		return nil
	}
	if h.in.Connector.Traits().CutLeaks { // as a leg of a client
		limit = h.in.DecodeFirst
	}
	bounded, cancel := context.WithTimeoutCause(ctx, limit, errStuck)
	defer cancel()
	answer := h.t.ask(bounded, h.d, h.q, leg, h.q.Salt)
	if answer.Err != nil && context.Cause(bounded) == errStuck && !engine.NotSent(answer.Err) {
		answer.Err = errStuck
	}
	switch {
	case engine.NotSent(answer.Err) || errors.Is(answer.Err, connector.ErrExpired):
		reply.Unsent()
		h.giveBack(ctx, reply)
	case answer.Err != nil && h.in.Connector.Traits().Rescue:
		h.rescue(ctx)
	}
	return answer
}

// rescue frees the decode engine's blocks of a leg that may wait for blocks which do not come, in a time of
// its own.
func (h *canaryHandoff) rescue(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Limit) // ended by the timeout
	defer cancel()
	_, _ = h.prefill(ctx)
}

// use says how old transfer parameters may be now, the time included that their engine stood still.
func (h *canaryHandoff) use() connector.Use {
	now := time.Now()
	return connector.Use{
		Now: now.Add(h.p.StalledFor(now) - h.stalled), Margin: h.in.Margin,
	}
}

// giveBack frees blocks that nobody will read, in a time of its own.
func (h *canaryHandoff) giveBack(ctx context.Context, reply *connector.Reply) {
	if !h.in.Connector.Traits().Returns(reply) {
		return
	}
	// Ended by the timeout.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.t.o.Settings().Probe)
	defer cancel()
	h.t.o.GiveBack(ctx, h.in.Connector, h.pair, reply, h.d.Member.ID)
}

// canaryLeg lets edit make a leg of a canary's body.
func canaryLeg(body []byte, id string, edit func(*connector.Leg) error) (*engine.Request, error) {
	var leg connector.Leg
	out, err := openai.EditOwn(body, func(e *openai.Edit) error {
		leg = connector.Leg{Body: e, RequestID: id}
		return edit(&leg)
	})
	return &engine.Request{Body: out, Loads: leg.Loads}, err
}

// errGrewOld is in the error of a canary whose kept connection ended, of an engine that lives.
var errGrewOld = errors.New("the connection grew too old")

// ask sends one body to one replica and reads the whole answer. The room that it takes on a decode
// replica is booked meanwhile.
func (t *Trials) ask(
	ctx context.Context, to *fleet.Endpoint, q *canary.Question, r *engine.Request, id string,
) canary.Answer {
	to.Begin()
	defer to.End()
	room := t.o.Decode.BookCanary(to.Member.ID, len(q.IDs), canary.AnswerTokens, time.Now())
	defer func() {
		room.Release(time.Now())
		t.o.RoomChanged()
	}()
	r.Method = http.MethodPost
	r.Path = openai.Completions.Path()
	r.ID = id
	resp, err := to.Do(ctx, r)
	if t.o.GrewOld(ctx, to, err) {
		return canary.Answer{Err: fmt.Errorf("%w: %w", errGrewOld, err)}
	}
	if err != nil {
		return canary.Answer{Err: err}
	}
	defer resp.Close()
	body, err := resp.ReadAll(1 << 20)
	return canary.Answer{Status: resp.Status, Body: body, Err: err}
}

// likely asks the engine that answers alone what else it may say to q, in a time of its own: the engine may
// have to compile something.
func (t *Trials) likely(
	ctx context.Context, alone *fleet.Endpoint, q *canary.Question,
) func() canary.Answer {
	return func() canary.Answer {
		ctx, cancel := context.WithTimeout(ctx, t.o.Settings().DecodeFirst)
		defer cancel()
		return t.ask(ctx, alone, q, &engine.Request{Body: q.Likely()}, q.Salt+"-likely")
	}
}

// kindOf says in the terms of ejection how an answer failed.
func (t *Trials) kindOf(a canary.Answer) outlier.Kind {
	switch {
	case a.Err == nil && a.Status != http.StatusOK && !t.o.ClientMayCause(a.Status):
		return outlier.Refusing
	case a.Err == nil:
		return outlier.ServerError
	case errors.Is(a.Err, context.DeadlineExceeded):
		return outlier.Silent
	case engine.NotSent(a.Err):
		return outlier.Refused
	}
	return outlier.Broken
}

func brief(a canary.Answer) string {
	if a.Err != nil {
		return a.Err.Error()
	}
	return http.StatusText(a.Status)
}
