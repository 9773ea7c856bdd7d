package cluster

import (
	"fmt"
	"slices"

	"tandem/internal/enginesim/core"
	"tandem/internal/kv"
	"tandem/internal/replica"
)

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
		c.advance(x)
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
	c.resume(f)
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
	switch {
	case x.leg == Prefill:
		e = c.engines[Prefill][x.p]
		r.MaxTokens, r.Transfer = 1, &core.Transfer{DoRemoteDecode: true}
	case x.piece > 0:
		r.Prompt, r.MaxTokens = x.prompt[:x.piece], 1
	}
	if c.turnsAway(x, e) {
		return nil
	}
	if err := e.core.Add(c.now, &r); err != nil {
		return fmt.Errorf("%s: %w", ID(e.side, e.index), err)
	}
	return c.kick(e)
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
