package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/lab/trace"
	"github.com/tandem-router/tandem/internal/replica"
)

// Result is the result of a run.
type Result struct {
	Records []Record // in the order of the calls' ends
	Busy    [2][]time.Duration
	Steps   int
	End     time.Duration // when the last request ended
	Engines [2][]core.Stats
}

// Run plays the whole trace. At the end it checks that every request has ended and every block is free. Now
// and then it checks the books of each engine.
func (c *Cluster) Run(ctx context.Context) (*Result, error) {
	if err := c.begin(); err != nil {
		return nil, err
	}
	for n := 0; len(c.clock.events.heap) > 0; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		ev := c.clock.events.pop()
		c.clock.now = ev.at
		if err := c.happen(&ev); err != nil {
			return nil, fmt.Errorf("at %v: %w", c.clock.now, err)
		}
	}
	return c.finish()
}

func (c *Cluster) begin() error {
	for _, side := range c.engines.of {
		for _, e := range side {
			for _, f := range c.fronts {
				at := time.Duration(c.rnd.Int64N(int64(c.cfg.Poll)))
				c.clock.events.add(event{at: at, kind: polled, e: e, to: f})
			}
		}
	}
	c.clock.events.add(event{at: time.Second, kind: ticked})
	for i, f := range c.fronts {
		if s, ok := f.Router.(Sharer); ok && s.ShareEvery() > 0 && len(c.fronts) > 1 {
			c.clock.events.add(
				event{at: s.ShareEvery() * time.Duration(i) / time.Duration(len(c.fronts)), kind: shared, to: f},
			)
		}
	}
	return c.fetch()
}

// fetch plans the start of the next session of the trace.
func (c *Cluster) fetch() error {
	s, err := c.sessions.source.Next()
	if errors.Is(err, io.EOF) {
		c.sessions.done = true
		return nil
	}
	if errors.Is(err, ErrNotYet) {
		c.sessions.waits = true
		return nil
	}
	if err != nil {
		return err
	}
	v := &visit{Session: s, number: c.sessions.count, left: len(s.Calls)}
	c.sessions.count++
	for i := range s.Calls {
		if s.Calls[i].After < 0 {
			c.clock.events.add(event{
				at: max(c.clock.now, s.At) + s.Calls[i].Think, kind: arrive,
				call: &call{session: v, rec: Record{At: -1, Call: i}},
			})
		}
	}
	// the next session is read when this one begins
	c.clock.events.add(event{at: max(c.clock.now, s.At), kind: wakened})
	return nil
}

// happen lets one event take effect.
//
// Long: one case per kind of event.
func (c *Cluster) happen(ev *event) error {
	switch ev.kind {
	case arrive:
		c.arrived(ev.call)
	case stepped:
		ev.e.steps.busy = false
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
		ev.e.steps.wake = 0
		return c.kick(ev.e)
	case sent:
		return c.deliver(ev.call)
	case replied:
		err := c.prefilled(ev.call)
		c.promptComputed(ev.call)
		return err
	case streamed:
		ev.call.rec.TTFT = c.clock.now - ev.call.rec.At
		ev.call.front.First(&ev.call.q, Time(c.clock.now))
		c.promptComputed(ev.call)
	case asked:
		c.asks(ev.call)
	case pieced:
		c.pieceDone(ev.call)
	case ended:
		return c.ended(ev.call)
	case read:
		return c.arrivedKV(ev.call)
	case fetched:
		return c.fetched(ev.fetch)
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
		c.come(ev.call)
	}
	return nil
}

// transfer moves blocks, as [Config.LinkModel] says.
func (c *Cluster) transfer(d, p *engine, o *core.Order) {
	slot, _ := slotOf(o.RequestID) // the cluster made this id
	x := c.slots.live[slot]
	x.rec.Moved = int64(len(o.Blocks)) * int64(d.core.Config().BlockSize) * int64(c.cfg.TokenBytes)
	class := c.cfg.Nodes[Prefill][p.index].Place.LinkTo(c.cfg.Nodes[Decode][d.index].Place)
	x.transfer.params, x.transfer.posting = nil, o.Posting
	x.transfer.blocks = append(x.transfer.blocks[:0], o.Blocks...)
	if c.cfg.LinkModel == Shared {
		c.flow(x, p, d, class)
		return
	}
	took := time.Duration(float64(x.rec.Moved) / c.cfg.Links[class] * 1e9)
	start := max(c.clock.now, p.link, d.link)
	p.link, d.link = start+took, start+took
	done := start + took + c.cfg.Setup + o.Posting
	x.rec.Transfer = done - c.clock.now
	c.clock.events.add(event{at: done, kind: read, call: x})
}

// arrivedKV ends a transfer.
func (c *Cluster) arrivedKV(x *call) error {
	p, d := c.engines.of[Prefill][x.place.p], c.engines.of[Decode][x.place.d]
	id := x.id()
	d.core.Loaded(c.clock.now, id, p.core.ReadBlocks(x.transfer.blocks), nil)
	p.core.Notify(c.clock.now, id)
	if err := c.kick(p); err != nil {
		return err
	}
	return c.kick(d)
}

// tell passes the oldest events of an engine to the routers that want them.
func (c *Cluster) tell(e *engine) {
	batch := e.feed.unpack()
	for _, f := range c.fronts {
		f.Apply(e.side, e.index, batch)
	}
}

// poll reports the present load of an engine to a router.
func (c *Cluster) poll(e *engine, f *front) {
	st := e.core.Stats()
	if c.cfg.StepLoad {
		st = e.steps.told
	}
	now := Time(c.clock.now)
	f.Observe(e.side, e.index, replica.Load{
		At: now, Source: replica.Metrics, Running: st.Running, Waiting: st.Waiting,
		Loading: st.FetchInProgress + st.FetchDone, Fetching: st.FetchInProgress, Usage: st.Usage,
		Reads: c.reads(e, &st),
	}, now)
	c.admit(f)
	if !c.over() {
		jitter := 0.9 + 0.2*c.rnd.Float64()
		c.clock.events.add(event{
			at: c.clock.now + time.Duration(jitter*float64(c.cfg.Poll)), kind: polled, e: e,
			to: f,
		})
	}
}

// reads returns an engine's counters of its KV reads, in bytes of the fleet's model.
func (c *Cluster) reads(e *engine, st *core.Stats) replica.Reads {
	return replica.Reads{
		Count: float64(st.NixlTransfers), Seconds: st.NixlReading.Seconds(), Posting: st.NixlPosting.Seconds(),
		Bytes: float64(st.NixlBlocks) * float64(e.core.Config().BlockSize) * float64(c.cfg.TokenBytes),
	}
}

// share sends a router's present report to the others.
func (c *Cluster) share(f *front) {
	teller := f.Router.(Sharer)
	said, from := teller.Share(Time(c.clock.now)), slices.Index(c.fronts, f)
	for _, other := range c.fronts {
		if other != f {
			other.Router.(Sharer).Hear(from, said, Time(c.clock.now))
			c.admit(other)
		}
	}
	if !c.over() {
		c.clock.events.add(event{at: c.clock.now + teller.ShareEvery(), kind: shared, to: f})
	}
}

// over reports whether everything has been played. Then repeated events are not planned again.
func (c *Cluster) over() bool {
	return c.sessions.done && len(c.slots.live) == len(c.slots.free) && !c.clock.coming()
}

// coming reports whether some call has not arrived yet.
func (c *virtualTime) coming() bool {
	return slices.ContainsFunc(c.events.heap, func(ev event) bool { return ev.kind == arrive })
}

func (c *Cluster) tick() error {
	for _, f := range c.fronts {
		f.Tick(Time(c.clock.now))
	}
	if c.cfg.Started != nil {
		c.cfg.Started(c.clock.now)
	}
	if !c.over() {
		c.clock.events.add(event{at: c.clock.now + time.Second, kind: ticked})
	}
	return nil
}

// finish checks that no work is left, and sums up.
func (c *Cluster) finish() (*Result, error) {
	r := &c.result
	if n := len(c.network.flows); n > 0 {
		return nil, fmt.Errorf("%d transfers have not ended", n)
	}
	for side := range c.engines.of {
		for _, e := range c.engines.of[side] {
			st := e.core.Stats()
			if err := e.core.Audit(); err != nil {
				return nil, fmt.Errorf("%s: %w", ID(e.side, e.index), err)
			}
			if st.Usage != 0 || st.Running+st.Waiting+st.Leases != 0 || math.IsNaN(st.Usage) {
				return nil, fmt.Errorf("%s is not empty at the end: %+v", ID(e.side, e.index), st)
			}
			r.Busy[side] = append(r.Busy[side], e.steps.spent)
			r.Engines[side] = append(r.Engines[side], st)
		}
	}
	return r, nil
}

var _ Source = (*trace.Reader)(nil)
