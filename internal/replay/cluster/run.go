package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"tandem/internal/enginesim/core"
	"tandem/internal/kv"
	"tandem/internal/replica"
	"tandem/internal/trace"
)

// Result is what became of a run.
type Result struct {
	Records []Record // in the order of their end
	Busy    [2][]time.Duration
	Steps   int
	End     time.Duration // when the last request ended
	Engines [2][]core.Stats
}

// Run plays everything. It checks at the end that every request has ended and every block is free; the books
// of each engine it checks now and then.
func (c *Cluster) Run(ctx context.Context) (*Result, error) {
	if err := c.begin(); err != nil {
		return nil, err
	}
	for n := 0; len(c.events.heap) > 0; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		ev := c.events.pop()
		c.now = ev.at
		if err := c.happen(&ev); err != nil {
			return nil, fmt.Errorf("at %v: %w", c.now, err)
		}
	}
	return c.finish()
}

func (c *Cluster) begin() error {
	for _, side := range c.engines {
		for _, e := range side {
			for _, f := range c.fronts {
				at := time.Duration(c.rnd.Int64N(int64(c.cfg.Poll)))
				c.events.add(event{at: at, kind: polled, e: e, to: f})
			}
		}
	}
	c.events.add(event{at: time.Second, kind: ticked})
	for i, f := range c.fronts {
		if s, ok := f.Router.(Sharer); ok && s.ShareEvery() > 0 && len(c.fronts) > 1 {
			c.events.add(
				event{at: s.ShareEvery() * time.Duration(i) / time.Duration(len(c.fronts)), kind: shared, to: f},
			)
		}
	}
	return c.fetch()
}

// fetch plans the start of the next session of the trace.
func (c *Cluster) fetch() error {
	s, err := c.source.Next()
	if errors.Is(err, io.EOF) {
		c.source1.done = true
		return nil
	}
	if err != nil {
		return err
	}
	c.source1.next = s
	v := &visit{Session: s, number: c.source1.count, left: len(s.Calls)}
	c.source1.count++
	for i := range s.Calls {
		if s.Calls[i].After < 0 {
			c.events.add(event{
				at: max(c.now, s.At) + s.Calls[i].Think, kind: arrive, call: &call{session: v, n: i, rec: Record{At: -1}},
			})
		}
	}
	c.events.add(event{at: max(c.now, s.At), kind: wakened}) // the next session is read when this one begins
	return nil
}

func (c *Cluster) happen(ev *event) error {
	switch ev.kind {
	case arrive:
		c.arrived(ev.call)
	case stepped:
		ev.e.busy = false
		if err := c.take(ev.e); err != nil {
			return err
		}
		if err := ev.e.audit(); err != nil {
			return err
		}
		return c.kick(ev.e)
	case wakened:
		if ev.e == nil {
			return c.fetch()
		}
		ev.e.wake = 0
		return c.kick(ev.e)
	case sent:
		return c.deliver(ev.call)
	case replied:
		return c.prefilled(ev.call)
	case streamed:
		ev.call.rec.TTFT = c.now - ev.call.rec.At
		ev.call.front.First(&ev.call.q, Time(c.now))
	case ended:
		return c.ended(ev.call)
	case read:
		return c.arrivedKV(ev.call)
	case flowed:
		c.flowed()
	case heard:
		c.tell(ev.e)
	case polled:
		c.poll(ev.e, ev.to)
	case ticked:
		return c.tick()
	case shared:
		c.share(ev.to)
	case turned:
		c.turn(ev.trouble)
	case noticed:
		c.notice(ev.e)
	case failed:
		c.legFailed(ev.call)
	case retried:
		c.retry(ev.call)
	}
	return nil
}

// arrived makes a request of a call and places it.
func (c *Cluster) arrived(x *call) {
	x.rec.At = c.now
	x.front = c.fronts[0]
	if n := len(c.fronts); n > 1 {
		x.front = c.fronts[c.rnd.IntN(n)]
	}
	c.compose(x)
	if len(x.front.waiting) > 0 || !c.place(x) {
		c.enqueue(x)
	}
}

// compose builds the prompt of x.
func (c *Cluster) compose(x *call) {
	s := x.session
	in := &s.Calls[x.n]
	c.blocks = s.AppendBlocks(c.blocks[:0], x.n)
	unique := uint64(s.number)<<24 | uint64(x.n)
	x.prompt = s.AppendTokens(nil, x.n, c.blocks, unique, 0)
	x.output = in.Output
	size := c.engines[Decode][0].core.Config().BlockSize
	x.q = Query{Slot: c.slot(x), Tokens: len(x.prompt), At: Time(c.now), Asked: in.Asked}
	if len(s.Calls) > 1 {
		x.q.Session = uint64(s.number) + 1
	}
	if c.want[Prefill] || c.want[Decode] {
		x.q.Keys = c.keys(kv.NewChain("", size), x.prompt)
	}
	x.rec.Session = s.number
	x.rec.Call = x.n
	x.rec.Prompt = len(x.prompt)
}

func (c *Cluster) slot(x *call) int {
	if n := len(c.free); n > 0 {
		slot := c.free[n-1]
		c.free = c.free[:n-1]
		c.live[slot] = x
		return slot
	}
	c.live = append(c.live, x)
	return len(c.live) - 1
}

// place asks the router and sends the first leg.
func (c *Cluster) place(x *call) bool {
	p, d, room := x.front.Place(&x.q, Time(c.now))
	if !room && d == Refuse {
		c.refuse(x)
		return true
	}
	if !room {
		return false
	}
	x.p = p
	x.d = d
	x.leg = Prefill
	x.placed = true
	x.attempt = c.failures
	x.rec.Waited = c.now - x.rec.At
	x.sentAt = c.now
	if p < 0 {
		x.leg = Decode
		c.bind(x)
		return true
	}
	c.send(x)
	return true
}

func (c *Cluster) enqueue(x *call) {
	if len(x.front.waiting) >= c.cfg.QueueLimit {
		c.refuse(x)
		return
	}
	x.front.waiting = append(x.front.waiting, x)
}

// admit places those who wait at a router, in their order, until one finds no room.
func (c *Cluster) admit(f *front) {
	for len(f.waiting) > 0 {
		x := f.waiting[0]
		switch {
		case c.now-x.rec.At > c.cfg.QueueTime:
			c.refuse(x)
		case !c.place(x):
			return
		}
		f.waiting = slices.Delete(f.waiting, 0, 1)
	}
}

// refuse ends a call without an answer. Its client goes on: a session whose call was refused has not ended.
func (c *Cluster) refuse(x *call) {
	if x.rec.Failures > 0 {
		c.lose(x)
		return
	}
	x.rec = Record{
		At: x.rec.At, Session: x.rec.Session, Call: x.rec.Call, Prompt: x.rec.Prompt, Refused: true, Prefill: -1,
		Decode: -1,
	}
	c.close(x)
}

// bind sends the leg that decodes to the replica that is right by now.
func (c *Cluster) bind(x *call) {
	x.d = x.front.Bind(&x.q, Time(c.now))
	x.leg, x.boundAt = Decode, c.now
	c.send(x)
}

func (c *Cluster) send(x *call) {
	x.flying = true
	c.events.add(event{at: c.now + c.cfg.Hop + c.onHost(x), kind: sent, call: x})
}

// deliver hands a leg to its engine.
func (c *Cluster) deliver(x *call) error {
	x.flying = false
	e := c.engines[Decode][max(0, x.d)]
	r := core.Request{ID: x.id(), Prompt: x.prompt, MaxTokens: x.output, IgnoreEOS: true, Transfer: x.params}
	if x.leg == Prefill {
		e = c.engines[Prefill][x.p]
		r.MaxTokens, r.Transfer = 1, &core.Transfer{DoRemoteDecode: true}
	}
	if c.turnsAway(x, e) {
		return nil
	}
	if err := e.core.Add(c.now, &r); err != nil {
		return fmt.Errorf("%s: %w", ID(e.side, e.index), err)
	}
	return c.kick(e)
}

// auditEvery is after how many steps of an engine the laws of conservation are checked on it: that looks at
// every block, and an idle engine breaks none.
const auditEvery = 2000

func (e *engine) audit() error {
	if e.steps%auditEvery != 0 {
		return nil
	}
	if err := e.core.Audit(); err != nil {
		return fmt.Errorf("%s: %w", ID(e.side, e.index), err)
	}
	return nil
}

// kick lets an engine that is not at work make its next step.
func (c *Cluster) kick(e *engine) error {
	for !e.busy {
		st := e.core.Step(c.now)
		if dead := e.core.Dead(); dead != nil {
			return fmt.Errorf("%s died: %w", ID(e.side, e.index), dead)
		}
		e.step = st
		if err := c.obey(e, st.Orders); err != nil {
			return err
		}
		if st.Took > 0 {
			e.busy = true
			e.until = c.now + st.Took
			e.spent += st.Took
			e.steps++
			c.result.Steps++
			c.events.add(event{at: c.now + st.Took, kind: stepped, e: e})
			return nil
		}
		if err := c.take(e); err != nil {
			return err
		}
		if st.Idle {
			c.plan(e, st.Wake)
			return nil
		}
	}
	return nil
}

// plan makes an engine that has nothing to do look again when a lease ends or a heartbeat is due.
func (c *Cluster) plan(e *engine, wake time.Duration) {
	if wake > 0 && (e.wake == 0 || wake < e.wake) {
		e.wake = max(wake, c.now+time.Microsecond)
		c.events.add(event{at: e.wake, kind: wakened, e: e})
	}
}

// take brings the outputs and events of the step that is over on their way.
func (c *Cluster) take(e *engine) error {
	if len(e.step.Events) > 0 && c.want[e.side] {
		e.feed.pack(e.step.Events, c.now)
		c.events.add(event{at: c.now + c.cfg.EventLag, kind: heard, e: e})
	}
	for i := range e.step.Outputs {
		o := &e.step.Outputs[i]
		slot, err := slotOf(o.ID)
		if err != nil || slot >= len(c.live) || c.live[slot] == nil {
			return fmt.Errorf("%s answers %q, which nobody asked", ID(e.side, e.index), o.ID)
		}
		x := c.live[slot]
		if e.side == Decode {
			x.gaps.token(c.now, o.First)
		}
		if o.First || o.Finished {
			c.output(e, x, o)
		}
	}
	e.step.Outputs, e.step.Events = nil, nil
	return nil
}

// output brings a first or last token on its way to the router.
func (c *Cluster) output(e *engine, x *call, o *core.Output) {
	if e.side == Prefill {
		st := e.core.Stats()
		x.answer = answer{cached: o.Cached, waiting: st.Waiting, usage: st.Usage, output: o.Out}
		x.params = transferOf(o.Params)
		x.rec.Cached = o.Cached
		c.events.add(event{at: c.now + c.cfg.Hop, kind: replied, call: x})
		return
	}
	if o.First {
		if x.p < 0 {
			x.rec.Cached = o.Cached
		}
		c.events.add(event{at: c.now + c.cfg.Hop, kind: streamed, call: x})
	}
	if o.Finished {
		x.answer.output = o.Out
		c.events.add(event{at: c.now + c.cfg.Hop, kind: ended, call: x})
	}
}

// transferOf is what the decode leg is told of the prefill.
func transferOf(o *core.TransferOut) *core.Transfer {
	ids := make([]int, len(o.BlockIDs))
	for i, id := range o.BlockIDs {
		ids[i] = int(id)
	}
	t := &core.Transfer{
		DoRemotePrefill: true, RemoteBlocks: core.Has(core.RemoteBlocks{Groups: [][]int{ids}}),
		EngineID:  core.Has(o.EngineID),
		RequestID: core.Has(o.RequestID), Host: core.Has(o.Host), TPSize: core.Has(1),
		NumTokens: core.Has(o.NumTokens),
	}
	t.Port.Present = true
	t.PrefillCached = core.Has(o.Cached)
	return t
}

// prefilled is the prefill answer at the router: it teaches the router, and the decode leg goes out.
func (c *Cluster) prefilled(x *call) error {
	now := Time(c.now)
	x.front.Observe(Prefill, x.p, replica.Load{
		At: now, Source: replica.ORCA, Running: -1, Loading: -1, Waiting: x.answer.waiting, Usage: x.answer.usage,
	}, now)
	x.front.Answered(&x.q, x.answer.cached, c.now-x.sentAt, now)
	c.bind(x)
	c.admit(x.front)
	return nil
}

// obey carries out what an engine wants of its peers.
func (c *Cluster) obey(e *engine, orders []core.Order) error {
	for i := range orders {
		o := &orders[i]
		peer := c.peers[o.Peer.EngineID]
		if peer == nil {
			return fmt.Errorf("%s asks %q, which is nobody", ID(e.side, e.index), o.Peer.EngineID)
		}
		switch o.Kind {
		case core.OrderRead:
			c.transfer(e, peer, o)
		case core.OrderNotify:
			peer.core.Notify(c.now, o.RemoteIDs[0])
			c.events.add(event{at: c.now, kind: wakened, e: peer})
		case core.OrderHeartbeat:
			peer.core.Heartbeat(c.now, o.RemoteIDs)
		}
	}
	return nil
}

// transfer moves blocks, as [Config.LinkModel] says.
func (c *Cluster) transfer(d, p *engine, o *core.Order) {
	slot, _ := slotOf(o.RequestID) // ours
	x := c.live[slot]
	x.rec.Moved = int64(len(o.Blocks)) * int64(d.core.Config().BlockSize) * int64(c.cfg.TokenBytes)
	class := c.cfg.Nodes[Prefill][p.index].Place.LinkTo(c.cfg.Nodes[Decode][d.index].Place)
	x.params = nil
	x.blocks = append(x.blocks[:0], o.Blocks...)
	if c.cfg.LinkModel == Shared {
		c.flow(x, p, d, class)
		return
	}
	took := time.Duration(float64(x.rec.Moved) / c.cfg.Links[class] * 1e9)
	start := max(c.now, p.link, d.link)
	p.link, d.link = start+took, start+took
	x.rec.Transfer = start + took + c.cfg.Setup - c.now
	c.events.add(event{at: start + took + c.cfg.Setup, kind: read, call: x})
}

// arrivedKV ends a transfer.
func (c *Cluster) arrivedKV(x *call) error {
	p, d := c.engines[Prefill][x.p], c.engines[Decode][x.d]
	id := x.id()
	d.core.Loaded(c.now, id, p.core.ReadBlocks(x.blocks), nil)
	p.core.Notify(c.now, id)
	if err := c.kick(p); err != nil {
		return err
	}
	return c.kick(d)
}

// ended is the last token at the router.
func (c *Cluster) ended(x *call) error {
	x.rec.Total = c.now - x.rec.At
	x.rec.Output = x.answer.output
	x.rec.Gap = x.gaps.longest
	x.rec.Prefill = x.p
	x.rec.Decode = x.d
	if x.answer.output != x.output {
		return fmt.Errorf("call %d of session %d got %d tokens, not %d",
			x.n, x.session.number, x.answer.output, x.output)
	}
	x.front.Done(&x.q, x.answer.output, x.rec.TTFT, x.rec.Total, Time(c.now))
	c.close(x)
	c.admit(x.front)
	return nil
}

// close keeps the record and starts what waited for the call.
func (c *Cluster) close(x *call) {
	c.result.Records = append(c.result.Records, x.rec)
	c.result.End = c.now
	c.live[x.q.Slot] = nil
	c.free = append(c.free, x.q.Slot)
	x.prompt = nil
	x.q.Keys = nil
	x.blocks = nil
	x.session.left--
	calls := x.session.Calls
	for i := x.n + 1; i < len(calls); i++ {
		if calls[i].After == x.n {
			c.events.add(event{at: c.now + calls[i].Think, kind: arrive, call: &call{session: x.session, n: i}})
		}
	}
}

// tell gives the oldest events of an engine to those who want them.
func (c *Cluster) tell(e *engine) {
	batch := e.feed.unpack()
	for _, f := range c.fronts {
		f.Apply(e.side, e.index, batch)
	}
}

// poll reports the load of an engine, as of now, to a router.
func (c *Cluster) poll(e *engine, f *front) {
	st := e.core.Stats()
	now := Time(c.now)
	f.Observe(e.side, e.index, replica.Load{
		At: now, Source: replica.Metrics, Running: st.Running, Waiting: st.Waiting,
		Loading: st.FetchInProgress + st.FetchDone, Usage: st.Usage,
	}, now)
	c.admit(f)
	if !c.over() {
		jitter := 0.9 + 0.2*c.rnd.Float64()
		c.events.add(event{at: c.now + time.Duration(jitter*float64(c.cfg.Poll)), kind: polled, e: e, to: f})
	}
}

// share lets a router tell the others what they ask it for at this moment.
func (c *Cluster) share(f *front) {
	teller := f.Router.(Sharer)
	said, from := teller.Share(Time(c.now)), slices.Index(c.fronts, f)
	for _, other := range c.fronts {
		if other != f {
			other.Router.(Sharer).Hear(from, said, Time(c.now))
			c.admit(other)
		}
	}
	if !c.over() {
		c.events.add(event{at: c.now + teller.ShareEvery(), kind: shared, to: f})
	}
}

// over says whether everything has been played: then nothing is planned that repeats itself.
func (c *Cluster) over() bool { return c.source1.done && len(c.live) == len(c.free) && !c.coming() }

// coming says whether some call is still to arrive.
func (c *Cluster) coming() bool {
	return slices.ContainsFunc(c.events.heap, func(ev event) bool { return ev.kind == arrive })
}

func (c *Cluster) tick() error {
	for _, f := range c.fronts {
		f.Tick(Time(c.now))
	}
	if c.cfg.Started != nil {
		c.cfg.Started(c.now)
	}
	if !c.over() {
		c.events.add(event{at: c.now + time.Second, kind: ticked})
	}
	return nil
}

// finish checks that nothing is left, and sums up.
func (c *Cluster) finish() (*Result, error) {
	r := &c.result
	if n := len(c.network.flows); n > 0 {
		return nil, fmt.Errorf("%d transfers have not ended", n)
	}
	for side := range c.engines {
		for _, e := range c.engines[side] {
			st := e.core.Stats()
			if err := e.core.Audit(); err != nil {
				return nil, fmt.Errorf("%s: %w", ID(e.side, e.index), err)
			}
			if st.Usage != 0 || st.Running+st.Waiting+st.Leases != 0 || math.IsNaN(st.Usage) {
				return nil, fmt.Errorf("%s is not empty at the end: %+v", ID(e.side, e.index), st)
			}
			r.Busy[side] = append(r.Busy[side], e.spent)
			r.Engines[side] = append(r.Engines[side], st)
		}
	}
	return r, nil
}

var _ Source = (*trace.Reader)(nil)
