package orchestrator

import (
	"context"
	"errors"
	"net/http"
	"time"

	"tandem/connector"
	"tandem/internal/config"
	"tandem/internal/engine"
	"tandem/internal/openai"
	"tandem/internal/replica"
	"tandem/orchestrator/fleet"
	"tandem/orchestrator/planner"
)

// handoff is one attempt: the legs of a booking, sent in the connector's order.
//
//	Sequential  prefill leg -> its answer's transfer params -> (decode looked at again) -> decode leg
//	Paired      prefill leg -> decode leg, the request id names both ends
//	Concurrent  both legs at once; the decode leg's answer counts, a failed prefill leg ends it
//
// One goroutine owns it; a concurrent prefill leg has one of its own, joined by release.
type handoff struct {
	j       *job
	b       *planner.Booking
	cfg     *config.Config
	attempt string // id of the attempt, on both legs
	pair    connector.Pair

	from    *reach               // the prefill replica, once asked
	sentAt  time.Time            // prefill leg
	doneAt  time.Time            // last byte of its answer
	stood   time.Duration        // how long we and the prefill engine had stood still before the prefill leg
	stalled time.Duration        // how long we had
	ends    *fleet.LeaseCounters // of the prefill engine before it
	lends   bool                 // the decode leg bears params: its engine reads blocks that are on loan
	counted int                  // prompt tokens as the prefill engine counted them
	cached  openai.CachedPrompt  // of the prefill engine
	ids     *legIDs              // both legs carry them; nil: both carry the client's own body

	around context.Context         // what the attempt's context is made of
	cancel context.CancelCauseFunc // ends the attempt's context
	clock  *time.Timer             // ends it when the phase that runs takes too long

	beside *prefillBeside     // concurrent order only
	held   [2]*fleet.Endpoint // of prefill and of decode, listened to until release
}

// enter returns the way to an engine that the attempt runs on, which is listened to until release even if it
// leaves; nil when it has left.
func (h *handoff) enter(at *replica.Replica) *reach {
	to := h.j.q.o.fleet.Endpoint(at.ID)
	if to == nil || !to.Member.SameEngine(at) || !to.Hold() {
		return nil
	}
	h.held[at.Role-replica.Prefill] = to
	return to
}

// run sends the legs and returns the answer when the generating engine has begun to answer well. When it
// fails the caller calls release.
func (h *handoff) run(ctx context.Context) (*answer, *failure) {
	h.cached, h.around = unknownCache, ctx
	if f := h.restOnly(); f != nil {
		return nil, f
	}
	ctx, h.cancel = context.WithCancelCause(ctx)
	if h.b.Mode == planner.Local {
		return h.local(ctx)
	}
	con := h.j.q.snap.connect
	var f *failure
	if h.ids, f = h.j.legIDs(ctx, &h.b.Decode); f != nil {
		return nil, f
	}
	h.pair = connector.Pair{Prefill: h.b.Prefill, Decode: h.b.Decode, AttemptID: h.attempt, IDs: h.ids != nil}
	if h.ids != nil {
		h.pair.PromptTokens = len(h.ids.list)
	}
	if con.Order() == connector.Concurrent {
		return h.concurrent(ctx, con)
	}
	return h.inTurn(ctx, con)
}

// release gives back what the booking holds and joins a prefill leg that runs beside. Harmless when repeated.
func (h *handoff) release() {
	h.stopClock()
	h.cancel(nil)
	if h.beside != nil {
		h.beside.end()
	}
	h.b.Release(time.Now())
	for i, e := range h.held {
		if e != nil {
			e.Release()
			h.held[i] = nil
		}
	}
	h.j.q.o.queue.wake()
}

// limit gives the phase that begins now d to end, or else late ends the attempt. The phases of an attempt
// follow one another: it has one clock at a time.
func (h *handoff) limit(d time.Duration, late error) {
	h.stopClock()
	h.clock = time.AfterFunc(d, func() { h.cancel(late) })
}

func (h *handoff) stopClock() {
	if h.clock != nil {
		h.clock.Stop()
	}
}

// local lets the decode replica prefill for itself: the client's own request, whole.
func (h *handoff) local(ctx context.Context) (*answer, *failure) {
	h.b.DecodeLease.MarkSent(time.Now())
	out := h.outgoing(h.j.body(), h.j.req.Kind.Path())
	out.load = !h.j.req.Stream
	if h.j.rest != nil && h.j.req.Kind != openai.Completions {
		connector.ReuseIDs(out.body, h.j.ids.json)
	}
	return h.send(ctx, out)
}

// body is the client's own request, or the one prompt of it that this job is.
func (j *job) body() *openai.Edit {
	if j.req.Batched && j.req.Unsplittable == "" {
		return j.askIDs(j.req.EditPrompt(j.index))
	}
	return j.askIDs(j.req.Edit())
}

// inTurn is the Sequential and the Paired order.
func (h *handoff) inTurn(ctx context.Context, con connector.Connector) (*answer, *failure) {
	reply, f := h.prefill(ctx, con)
	if f != nil {
		return nil, f
	}
	if con.Order() == connector.Paired {
		reply = nil
	}
	if ctx.Err() != nil {
		h.giveBack(con, reply, "")
		return nil, h.ended(ctx)
	}
	if con.Order() == connector.Paired { // the id that went out names this decode replica: no other will do
		h.b.DecodeLease.MarkSent(time.Now())
	} else if f := h.rebind(ctx); f != nil {
		h.giveBack(con, reply, h.b.Decode.ID)
		return nil, f
	}
	a, f := h.decode(ctx, con, reply)
	if f != nil && f.unused {
		if reply != nil {
			reply.Unsent()
		}
		h.giveBack(con, reply, f.at)
	}
	return a, f
}

// ended is an attempt whose context ended between the legs. Where the clock of the prefill did it, just
// behind the last byte, the client is still there.
func (h *handoff) ended(ctx context.Context) *failure {
	if errors.Is(context.Cause(ctx), errPhaseTimeout) {
		return legFailed(ctx, "prefill", h.b.Prefill.ID, errPhaseTimeout)
	}
	return goneFailure(ctx, "handoff")
}

// concurrent sends both legs at once.
func (h *handoff) concurrent(ctx context.Context, con connector.Connector) (*answer, *failure) {
	h.b.DecodeLease.MarkSent(time.Now())
	ctx = h.startBeside(ctx, con)
	a, f := h.decode(ctx, con, nil)
	if f != nil {
		if p := h.beside.failure(); p != nil {
			return nil, p // the cause, not the cancelled other half
		}
		return nil, f
	}
	return a, nil
}

// prefill runs the prefill leg to the end of its answer and ends the prefill lease.
func (h *handoff) prefill(ctx context.Context, con connector.Connector) (*connector.Reply, *failure) {
	o := h.j.q.o
	at := h.b.Prefill.ID
	to := h.enter(&h.b.Prefill)
	if to == nil {
		f := refuse("prefill", "left", http.StatusServiceUnavailable, "The prefill replica has left the pool.")
		f.at, f.retry = at, true
		return nil, f
	}
	ctx, giveUp, stop := h.prefillContext(ctx)
	defer stop()
	out, f := h.prefillBody(con)
	if f != nil {
		return nil, f
	}
	ctx, span := h.j.leg(ctx, legPrefill, &to.Member)
	h.sentAt = time.Now()
	h.from = to
	h.stood = to.StalledFor(h.sentAt)
	h.stalled = o.clock.StalledFor(h.sentAt)
	h.ends = to.LeaseCounters()
	defer h.watchPrefillLeg(to, giveUp).Stop()
	var held []byte // the answer's memory, whose parts are used until the reply has its copy
	defer func() { giveBuffer(held) }()
	answer, f := h.exchange(ctx, to, out, &held)
	h.doneAt = time.Now()
	if h.beside == nil {
		h.stopClock() // what is between the legs is bounded by the margin
	}
	took := h.doneAt.Sub(h.sentAt)
	h.j.rec.Phases.Prefill += ms(took)
	span.prefilled(&answer, f)
	if f != nil {
		if len(answer.Params) > 0 { // its blocks are kept for us all the same
			h.giveBack(con, connector.NewReply(answer.Params, h.doneAt, 0, 0), "")
		}
		return nil, f
	}
	o.m.observe(phasePrefill, took)
	o.m.leg.WithLabelValues("prefill", string(at)).Observe(took.Seconds())
	o.m.compare("prefill", at, took, h.b.Prefilled())
	h.cached.Found, h.counted = answer.CachedTokens, answer.PromptTokens
	h.j.rec.Delivered = answer.CachedTokens
	o.planner.PrefillDone(h.b, answer.CachedTokens, took, h.doneAt)
	return connector.NewReply(answer.Params, h.doneAt, h.counted, h.b.Prefill.Facts.BlockSize), nil
}

// prefillContext is what the prefill leg runs in, until it is given up or stop is called. Where the leg runs
// by itself it has its own time, and outlives its client for a moment.
func (h *handoff) prefillContext(
	ctx context.Context,
) (own context.Context, giveUp context.CancelCauseFunc, stop func()) {
	if h.beside == nil {
		h.limit(h.cfg.Timeouts.Prefill, errPhaseTimeout)
		return cancelGrace(ctx, time.Now().Add(h.b.Prefilled()))
	}
	own, giveUp = context.WithCancelCause(ctx)
	return own, giveUp, func() { giveUp(nil) }
}

// prefilled notes that the prefill replica gave what can be handed over.
func (h *handoff) prefilled() { h.j.q.o.tell(h.j.q.o.planner.Prefilled(h.b, time.Now())) }

// unknownCache is what is known of an engine's prefix cache before it has told.
var unknownCache = openai.CachedPrompt{Found: -1, Added: -1}

// prefillCached is what the prefill engine had cached of a split request's prompt, and what it has added. It
// waits for a prefill leg that runs beside: how that ends changes nothing, since the answer is there.
func (h *handoff) prefillCached() openai.CachedPrompt {
	if h.beside != nil {
		_ = h.beside.wait()
	}
	if h.b.Mode != planner.Split {
		return unknownCache
	}
	return h.cached
}

// noteAdded works out what the prefill engine has put into its prefix cache, which the answer of a completion
// does not tell: all whole blocks of the prompt that it had not found there (vLLM 0.32,
// v1/core/kv_cache_manager.py estimate_cached_tokens).
func (h *handoff) noteAdded(reply *connector.Reply) {
	if reply == nil || h.cached.Found < 0 || !h.b.Prefill.Facts.PrefixCaching {
		return
	}
	if whole := reply.WholeBlocks(); whole >= 0 {
		h.cached.Added = max(0, whole-h.cached.Found)
	}
}

// delivered notes what the engine says it had cached, where it prefilled itself. Of several samples it tells
// one's, which may have found what another of the same request had just computed: that says nothing of what
// was there before (vLLM 0.32, measured).
func (h *handoff) delivered(u openai.Usage) {
	if h.b.Mode != planner.Split && u.Cached >= 0 && h.j.plan.Sequences <= 1 {
		h.j.rec.Delivered = u.Cached
		h.b.DecodeLease.Delivered(u.Cached)
	}
}

// prefillBody writes leg 1: the ids on /v1/completions whatever the front door, or the client's own body on
// its own path.
func (h *handoff) prefillBody(con connector.Connector) (*outgoing, *failure) {
	var out *outgoing
	switch {
	case h.ids != nil:
		out = h.outgoing(h.j.req.PrefillIDs(h.ids.json), openai.Completions.Path())
	default:
		out = h.outgoing(h.j.req.PrefillBody(false), h.j.req.Kind.Path())
		if h.j.req.Batched {
			out.body.Set("prompt", h.j.prompt().Text)
		}
	}
	out.load = true
	if err := con.EditPrefill(out.edited(h.attempt), h.pair); err != nil {
		f := refuse("prefill", "edit", http.StatusInternalServerError, "The prefill request could not be written.")
		f.err = err
		return nil, f
	}
	return out, nil
}

// exchange sends leg 1 and reads its whole answer into held, whose memory the result shares. An answer that
// is no good may have transfer params, which are for giving back only.
func (h *handoff) exchange(
	ctx context.Context, to *reach, out *outgoing, held *[]byte,
) (openai.PrefillAnswer, *failure) {
	none := openai.PrefillAnswer{CachedTokens: -1}
	leg := h.leg(ctx, to, out)
	resp, err := to.Do(ctx, leg)
	giveBuffer(leg.Body)
	if err != nil {
		return none, legFailed(ctx, "prefill", to.Member.ID, err)
	}
	defer resp.Close()
	h.j.q.o.report(to, resp)
	raw, err := resp.AppendAll(borrow(0), int64(h.cfg.Limits.AnswerBytes))
	*held = raw
	if err != nil {
		return none, legFailed(ctx, "prefill", to.Member.ID, err)
	}
	if resp.Status != http.StatusOK {
		return none, answered("prefill", to.Member.ID, resp.Status, raw, resp.Header.Get("Content-Type"),
			resp.Header.Get("Retry-After"))
	}
	answer, err := openai.ReadPrefill(raw)
	if err == nil && h.ids != nil && answer.PromptTokens > 0 && answer.PromptTokens != len(h.ids.list) {
		err = errors.New("the engine counted another number of prompt tokens than were sent")
	}
	if err != nil {
		f := legFailed(ctx, "prefill", to.Member.ID, err)
		f.kind = "bad_answer"
		none.Params = answer.Params
		return none, f
	}
	return answer, nil
}

// outgoing is a leg before it is sent.
type outgoing struct {
	body   *openai.Edit
	path   string
	id     string         // X-Request-Id; a connector may want its own
	header []engine.Field // what else a connector wants
	load   bool           // ask for the engine's load with the answer
	last   func() error   // may forbid the leg just before its first byte leaves; nil allows it

	leg     connector.Leg   // as a connector edits it
	request engine.Request  // as it is sent
	fields  [4]engine.Field // memory of its header
}

func (h *handoff) outgoing(body *openai.Edit, path string) *outgoing {
	return &outgoing{body: body, path: path, id: h.attempt}
}

// edited is o as a connector edits it.
func (o *outgoing) edited(attempt string) *connector.Leg {
	o.leg = connector.Leg{Body: o.body, RequestID: attempt, SetHeader: o.set}
	return &o.leg
}

func (o *outgoing) set(key, value string) {
	if key == "X-Request-Id" {
		o.id = value
		return
	}
	o.header = append(o.header, engine.Field{Key: key, Value: value})
}

// leg makes the request of one leg.
func (h *handoff) leg(ctx context.Context, to *reach, out *outgoing) *engine.Request {
	r := &out.request
	r.Method = http.MethodPost
	r.Path = out.path
	r.Last = out.last
	r.Body = out.body.Append(borrow(out.body.Len()))
	r.Header = append(out.fields[:0], engine.Field{Key: "X-Request-Id", Value: out.id})
	r.Header = append(r.Header, out.header...)
	if out.load {
		r.Header = append(r.Header, engine.Field{Key: "Endpoint-Load-Metrics-Format", Value: "TEXT"})
	}
	if s := h.j.q.r.Header.Get("X-Session-Id"); s != "" {
		r.Header = append(r.Header, engine.Field{Key: "X-Session-Id", Value: s})
	}
	return h.j.q.o.propagate(ctx, r, h.j.q.r.Header)
}

// rebind looks at the decode choice again: the prefill took a while, and the replica may have lost its room
// or died.
func (h *handoff) rebind(ctx context.Context) *failure {
	moved, err := h.j.q.o.planner.Rebind(h.b, &h.j.plan, time.Now())
	if err != nil {
		if ctx.Err() != nil {
			return h.ended(ctx)
		}
		f := refuse("handoff", "no_decode", http.StatusServiceUnavailable,
			"No decode replica can take the request any more.")
		f.err, f.retry = err, true
		return f
	}
	if !moved {
		return nil
	}
	h.j.q.o.m.rebinds.Inc()
	h.j.rec.Decode, h.j.rec.Decision = string(h.b.Decode.ID), h.b.Decision
	if d := h.b.Decision; d != nil && d.Moved != nil {
		h.j.rec.Reason += "; then moved to " + string(d.Moved.To) + ": " + d.Moved.Reason
	}
	if h.ids != nil && (!reuses(&h.b.Decode.Facts, h.j.req.Kind) || h.j.ids.legs(&h.b.Decode) == nil) {
		f := refuse("handoff", "no_id_reuse", http.StatusServiceUnavailable,
			"The remaining decode replicas cannot take token ids.")
		f.retry = true
		return f
	}
	h.pair.Decode = h.b.Decode
	return nil
}

// decode writes the decode leg and sends it.
func (h *handoff) decode(
	ctx context.Context, con connector.Connector, reply *connector.Reply,
) (*answer, *failure) {
	_, span := h.j.q.o.step(ctx, "handoff")
	out := h.outgoing(h.j.body(), h.j.req.Kind.Path())
	out.load = !h.j.req.Stream
	leg := out.edited(h.attempt)
	switch {
	case h.ids == nil && h.beside == nil:
		h.pair.PromptTokens = h.counted
	case h.ids == nil:
	case h.j.req.Kind == openai.Completions:
		out.body.Set("prompt", h.ids.json)
	default:
		leg.ReuseIDs = h.ids.json
	}
	err := con.EditDecode(leg, h.pair, reply, h.use(reply))
	if reply != nil {
		h.lends = true
		out.last = func() error {
			if reply.Expired(h.use(reply)) {
				return connector.ErrExpired
			}
			return nil
		}
	}
	span.end()
	if err != nil {
		return nil, h.notHandedOver(err)
	}
	h.noteAdded(reply)
	if h.beside == nil {
		h.prefilled()
	}
	return h.send(ctx, out)
}

// use says what time it is for the params of reply: standing still makes them older than our clock says.
func (h *handoff) use(reply *connector.Reply) connector.Use {
	use := connector.Use{Now: time.Now(), Margin: h.cfg.Connector.Margin}
	if reply != nil {
		use.Now = use.Now.Add(h.from.StalledFor(use.Now) - h.stood)
	}
	return use
}

// notHandedOver judges transfer params that must not go out.
func (h *handoff) notHandedOver(err error) *failure {
	kind := "bad_params"
	switch {
	case errors.Is(err, connector.ErrExpired):
		kind = "expired"
	case errors.Is(err, connector.ErrTaken):
		kind = "taken"
	case errors.Is(err, connector.ErrForeign):
		kind = "foreign"
	}
	h.j.q.o.m.params.WithLabelValues(kind).Inc()
	message := "The prefill replica's answer could not be handed over: " + kind + "."
	if h.cfg.Local == config.LocalNever {
		message += " No decode replica may compute the prompt itself (local: never)."
	}
	f := refuse("handoff", kind, http.StatusBadGateway, message)
	f.err = err
	f.at = ""
	f.retry = true
	f.owner = "prefill"
	f.unused = true
	if kind == "bad_params" || kind == "foreign" {
		f.at = h.b.Prefill.ID
		f.phase = "prefill"
	}
	return f
}

// send sends the generating leg and waits until it has begun to answer well.
func (h *handoff) send(ctx context.Context, out *outgoing) (*answer, *failure) {
	to := h.enter(&h.b.Decode)
	if to == nil {
		return nil, left(h.b.Decode.ID)
	}
	a := h.newAnswer(ctx, to)
	f := a.open(h.leg(a.spanCtx, to, out))
	if f != nil {
		a.span.failed(f)
		a.maybeDistrust(f)
		a.close()
		return nil, f
	}
	return a, nil
}

// report passes on the load that an answer carried. With several ranks behind one address the header does not
// say whose it is.
func (o *Orchestrator) report(to *reach, resp *engine.Response) {
	if to.Member.Pinned() {
		return
	}
	value := resp.Header.Get("Endpoint-Load-Metrics")
	if value == "" {
		return
	}
	if load, ok := engine.ParseORCA(value); ok {
		now := time.Now()
		load.At = now
		to.Observe(load, now)
	}
}
