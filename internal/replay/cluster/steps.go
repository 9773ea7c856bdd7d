package cluster

import (
	"fmt"
	"time"

	"tandem/internal/enginesim/core"
)

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
		if e.side == Decode && x.piece == 0 {
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
	if x.p < 0 && o.First && x.rec.Pieces == 0 {
		x.rec.Cached = o.Cached
	}
	if x.piece > 0 {
		c.events.add(event{at: c.now + c.cfg.Hop, kind: pieced, call: x})
		return
	}
	if o.First {
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
