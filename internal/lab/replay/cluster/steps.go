package cluster

import (
	"fmt"
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// auditEvery is the number of steps between two checks of an engine's books. A check looks at every block, so
// it is not done in each step.
const auditEvery = 2000

func (e *engine) audit() error {
	if e.steps.count%auditEvery != 0 {
		return nil
	}
	if err := e.core.Audit(); err != nil {
		return fmt.Errorf("%s: %w", ID(e.side, e.index), err)
	}
	return nil
}

// kick lets an idle engine make its next step.
func (c *Cluster) kick(e *engine) error {
	for !e.steps.busy {
		st := e.core.Step(c.clock.now)
		if dead := e.core.Dead(); dead != nil {
			return fmt.Errorf("%s died: %w", ID(e.side, e.index), dead)
		}
		e.steps.current, e.steps.coming = st, e.core.Stats()
		if err := c.obey(e, st.Orders); err != nil {
			return err
		}
		if st.Took > 0 {
			e.steps.busy = true
			e.steps.until = c.clock.now + st.Took
			e.steps.spent += st.Took
			e.steps.count++
			c.result.Steps++
			c.clock.events.add(event{at: c.clock.now + st.Took, kind: stepped, e: e})
			return nil
		}
		if err := c.take(e); err != nil {
			return err
		}
		if st.Idle {
			c.clock.plan(e, st.Wake)
			return nil
		}
	}
	return nil
}

// plan wakes an engine without work when a lease ends or a heartbeat is due.
func (c *virtualTime) plan(e *engine, wake time.Duration) {
	if wake > 0 && (e.steps.wake == 0 || wake < e.steps.wake) {
		e.steps.wake = max(wake, c.now+time.Microsecond)
		c.events.add(event{at: e.steps.wake, kind: wakened, e: e})
	}
}

// take sends the outputs and events of the ended step on their way.
func (c *Cluster) take(e *engine) error {
	e.steps.told = e.steps.coming
	if len(e.steps.current.Events) > 0 && c.want[e.side] {
		e.feed.pack(e.steps.current.Events, c.clock.now)
		c.clock.events.add(event{at: c.clock.now + c.cfg.EventLag, kind: heard, e: e})
	}
	streams := false
	for i := range e.steps.current.Outputs {
		o := &e.steps.current.Outputs[i]
		slot, err := slotOf(o.ID)
		if err != nil || slot >= len(c.slots.live) || c.slots.live[slot] == nil {
			return fmt.Errorf("%s answers %q, which is no request in progress", ID(e.side, e.index), o.ID)
		}
		x := c.slots.live[slot]
		if e.side == Decode && x.leg.piece == 0 {
			x.gaps.token(c.clock.now, o.First)
			streams = true
		}
		if o.First || o.Finished {
			c.output(e, x, o)
		}
	}
	if streams {
		e.beside.got(c.clock.now + c.cfg.Hop)
	}
	e.steps.current.Outputs, e.steps.current.Events = nil, nil
	return nil
}

// output sends a first or last token on its way to the router.
func (c *Cluster) output(e *engine, x *call, o *core.Output) {
	if e.side == Prefill {
		st := e.core.Stats()
		x.leg.answer = answer{cached: o.Cached, waiting: st.Waiting, usage: st.Usage, output: o.Out}
		x.transfer.params = transferOf(o.Params)
		x.rec.Cached = o.Cached
		c.clock.events.add(event{at: c.clock.now + c.cfg.Hop, kind: replied, call: x})
		return
	}
	if x.place.p < 0 && o.First && x.rec.Pieces == 0 {
		x.rec.Cached = o.Cached
	}
	if x.leg.piece > 0 {
		c.clock.events.add(event{at: c.clock.now + c.cfg.Hop, kind: pieced, call: x})
		return
	}
	if o.First {
		c.clock.events.add(event{at: c.clock.now + c.cfg.Hop, kind: streamed, call: x})
	}
	if o.Finished {
		x.leg.answer.output = o.Out
		c.clock.events.add(event{at: c.clock.now + c.cfg.Hop, kind: ended, call: x})
	}
}

// transferOf returns the transfer params that the decode leg gets from the prefill leg.
func transferOf(o *core.TransferOut) *core.Transfer {
	ids := make([]int, len(o.BlockIDs))
	for i, id := range o.BlockIDs {
		ids[i] = int(id)
	}
	t := &core.Transfer{
		DoRemotePrefill: true, RemoteBlocks: core.Has(core.RemoteBlocks{Groups: [][]int{ids}}),
		EngineID:  core.Has(o.EngineID),
		RequestID: core.Has(o.RequestID), Host: core.Has(o.Host), TPSize: core.Has(o.TPSize),
		NumTokens: core.Has(o.NumTokens),
	}
	t.Port.Present = true
	t.PrefillCached = core.Has(o.Cached)
	return t
}

// obey carries out an engine's order to its peers.
func (c *Cluster) obey(e *engine, orders []core.Order) error {
	for i := range orders {
		o := &orders[i]
		if o.Kind == core.OrderProbe {
			c.probe(e, o)
			continue
		}
		peer := c.engines.byID[o.Peer.EngineID]
		if peer == nil {
			return fmt.Errorf("%s asks engine %q, which does not exist", ID(e.side, e.index), o.Peer.EngineID)
		}
		switch o.Kind {
		case core.OrderRead:
			c.transfer(e, peer, o)
		case core.OrderNotify:
			peer.core.Notify(c.clock.now, o.RemoteIDs[0])
			c.clock.events.add(event{at: c.clock.now, kind: wakened, e: peer})
		case core.OrderHeartbeat:
			peer.core.Heartbeat(c.clock.now, o.RemoteIDs)
		}
	}
	return nil
}
