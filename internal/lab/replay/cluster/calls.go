package cluster

import (
	"fmt"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
	"github.com/tandem-router/tandem/internal/replica"
)

// arrived makes the request of a call and places it.
func (c *Cluster) arrived(x *call) {
	x.rec.At = c.clock.now
	x.front = c.fronts[0]
	if n := len(c.fronts); n > 1 {
		x.front = c.fronts[c.rnd.IntN(n)]
	}
	c.compose(x)
	c.come(x)
}

// compose builds the prompt of x.
func (c *Cluster) compose(x *call) {
	s := x.session
	in := &s.Calls[x.rec.Call]
	c.blocks = s.AppendBlocks(c.blocks[:0], x.rec.Call)
	unique := uint64(s.number)<<24 | uint64(x.rec.Call)
	x.prompt = s.AppendTokens(nil, x.rec.Call, c.blocks, unique, 0)
	x.output = in.Output
	x.q = Query{Slot: c.slots.slot(x), Tokens: len(x.prompt), At: Time(c.clock.now), Asked: in.Asked}
	if len(s.Calls) > 1 {
		x.q.Session = uint64(s.number) + 1
	}
	c.ask(x)
	x.q.Class = c.cfg.Mix.Class(s.number)
	x.rec.Session = s.number
	x.rec.Prompt = len(x.prompt)
}

func (c *slots) slot(x *call) int {
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
	p, d, room := x.front.Place(&x.q, Time(c.clock.now))
	if !room && d == Refuse {
		c.refuse(x)
		return true
	}
	if !room {
		return false
	}
	x.place.p = p
	x.place.d = d
	x.leg.side = Prefill
	x.place.placed = true
	x.place.attempt = c.failures.count
	x.rec.Waited = c.clock.now - x.rec.At
	x.leg.sentAt = c.clock.now
	if p < 0 {
		x.leg.side = Decode
		c.advance(x)
		return true
	}
	c.send(x)
	return true
}

// refuse ends a call without an answer. A refused call does not end its client's session.
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

// bind sends the decode leg to the replica that is best now.
func (c *Cluster) bind(x *call) {
	x.place.d = x.front.Bind(&x.q, Time(c.clock.now))
	x.leg.side, x.leg.boundAt = Decode, c.clock.now
	c.send(x)
}

func (c *Cluster) send(x *call) {
	x.leg.flying = true
	c.clock.events.add(event{at: c.clock.now + c.cfg.Hop + c.onHost(x), kind: sent, call: x})
}

// deliver hands a leg to its engine.
func (c *Cluster) deliver(x *call) error {
	x.leg.flying = false
	e := c.engines.of[Decode][max(0, x.place.d)]
	r := core.Request{
		ID: x.id(), Prompt: x.prompt, MaxTokens: x.output, IgnoreEOS: true, Transfer: x.transfer.params,
	}
	switch {
	case x.leg.side == Prefill:
		e = c.engines.of[Prefill][x.place.p]
		r.MaxTokens, r.Transfer = 1, &core.Transfer{DoRemoteDecode: true, Source: c.sourceOf(x)}
	case x.leg.piece > 0:
		r.Prompt, r.MaxTokens = x.prompt[:x.leg.piece], 1
	}
	if x.place.p < 0 && x.rec.Pieces == 0 {
		if source := c.sourceOf(x); source.Present {
			r.Transfer = &core.Transfer{Source: source}
		}
	}
	if c.turnsAway(x, e) {
		return nil
	}
	if err := e.core.Add(c.clock.now, &r); err != nil {
		return fmt.Errorf("%s: %w", ID(e.side, e.index), err)
	}
	return c.kick(e)
}

// prefilled handles the prefill answer at the router: the router learns from it, and the decode leg is sent.
func (c *Cluster) prefilled(x *call) error {
	now := Time(c.clock.now)
	x.front.Observe(Prefill, x.place.p, replica.Load{
		At: now, Source: replica.ORCA, Running: -1, Loading: -1, Fetching: -1,
		Waiting: x.leg.answer.waiting, Usage: x.leg.answer.usage,
	}, now)
	x.q.Counted = len(x.prompt)
	x.front.Answered(&x.q, x.leg.answer.cached, c.clock.now-x.leg.sentAt, now)
	c.bind(x)
	c.admit(x.front)
	return nil
}

// ended handles the last token at the router.
func (c *Cluster) ended(x *call) error {
	x.rec.Total = c.clock.now - x.rec.At
	x.rec.Output = x.leg.answer.output
	x.rec.Gap = x.gaps.longest
	x.rec.Prefill = x.place.p
	x.rec.Decode = x.place.d
	if x.leg.answer.output != x.output {
		return fmt.Errorf("call %d of session %d got %d tokens, not %d",
			x.rec.Call, x.session.number, x.leg.answer.output, x.output)
	}
	x.q.Counted = len(x.prompt)
	x.front.Done(&x.q, x.leg.answer.output, x.rec.TTFT, x.rec.Total, Time(c.clock.now))
	c.close(x)
	c.admit(x.front)
	return nil
}

// close keeps the record and starts the calls that waited for this call.
func (c *Cluster) close(x *call) {
	c.result.Records = append(c.result.Records, x.rec)
	c.result.End = c.clock.now
	c.slots.live[x.q.Slot] = nil
	c.slots.free = append(c.slots.free, x.q.Slot)
	x.prompt = nil
	x.q.Keys = nil
	x.transfer.blocks = nil
	x.session.left--
	if c.sessions.ended(c.clock.now) {
		c.clock.events.add(event{at: c.clock.now, kind: wakened})
	}
	calls := x.session.Calls
	for i := x.rec.Call + 1; i < len(calls); i++ {
		if calls[i].After == x.rec.Call {
			c.clock.events.add(event{
				at: c.clock.now + calls[i].Think, kind: arrive,
				call: &call{session: x.session, rec: Record{Call: i}},
			})
		}
	}
}
