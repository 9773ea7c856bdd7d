package cluster

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// Trouble is a failure of one replica for some virtual time: one of Fail, Slow and Gone.
type Trouble struct {
	Side     Side
	Index    int
	From, To time.Duration
	Fail     float64 // share of its requests that it answers with an error at once; the others succeed
	Slow     float64 // factor by which everything takes longer
	Gone     bool    // it takes no requests, finishes the running ones, and comes back with an empty cache
}

// noticedAfter is the time until routers learn that a replica has left or joined.
const noticedAfter = time.Second

// rejoinEvery is the interval at which a replica that should come back checks whether its old requests have
// ended.
const rejoinEvery = time.Second

// ParseTroubles reads troubles, separated by commas. Each has the form d0:fail=0.5@5m+1m: the replica, the
// failure (fail, fail=share, slow=factor, gone), its begin, and its length.
func ParseTroubles(text string) ([]Trouble, error) {
	var all []Trouble
	for one := range strings.SplitSeq(text, ",") {
		if one == "" {
			continue
		}
		t, err := parseTrouble(one)
		if err != nil {
			return nil, fmt.Errorf("trouble %q: %w", one, err)
		}
		all = append(all, t)
	}
	return all, nil
}

func parseTrouble(text string) (t Trouble, err error) {
	who, rest, ok := strings.Cut(text, ":")
	what, when, timed := strings.Cut(rest, "@")
	from, span, long := strings.Cut(when, "+")
	if !ok || !timed || !long || len(who) < 2 {
		return t, fmt.Errorf("want a replica, a failure and a time, like d0:fail@5m+1m")
	}
	switch who[0] {
	case 'p':
	case 'd':
		t.Side = Decode
	default:
		return t, fmt.Errorf("no replica %q: p0 is the first prefill replica, d0 the first decode replica", who)
	}
	if t.Index, err = strconv.Atoi(who[1:]); err != nil || t.Index < 0 {
		return t, fmt.Errorf("no replica %q", who)
	}
	if t.From, err = time.ParseDuration(from); err != nil {
		return t, err
	}
	long1, err := time.ParseDuration(span)
	if err != nil {
		return t, err
	}
	if t.From < 0 || long1 <= 0 {
		return t, fmt.Errorf("the begin must be 0 or later, and the length above 0")
	}
	t.To = t.From + long1
	return t, t.setWhat(what)
}

func (t *Trouble) setWhat(what string) (err error) {
	name, value, given := strings.Cut(what, "=")
	switch {
	case name == "gone" && !given:
		t.Gone = true
	case name == "fail" && !given:
		t.Fail = 1
	case name == "fail":
		if t.Fail, err = strconv.ParseFloat(value, 64); err != nil || !(t.Fail > 0 && t.Fail <= 1) {
			return fmt.Errorf("%q: want a share above 0 and up to 1", value)
		}
	case name == "slow":
		if t.Slow, err = strconv.ParseFloat(value, 64); err != nil || !(t.Slow > 1 && t.Slow <= 1e6) {
			return fmt.Errorf("%q: want a factor above 1", value)
		}
	default:
		return fmt.Errorf("%q: want fail, fail=share, slow=factor or gone", what)
	}
	return nil
}

// Failure is a leg that failed, as a router sees it.
type Failure struct {
	Leg     Side // Decode also if the replica was to do everything
	Replica int
	Refused bool          // the connection was refused; otherwise the replica answered with an error
	Took    time.Duration // since the leg was sent
}

// Verdict is a router's decision about a failure.
type Verdict struct {
	Again     bool          // the request is placed anew; otherwise its client gets the error
	After     time.Duration // delay before the retry
	GivesBack bool          // the prefill engine frees its blocks at once; else when their lease ends
}

// Survivor is a [Router] that handles failing and leaving replicas. Only such routers can be played with
// troubles.
type Survivor interface {
	// Failed releases the bookings of q, and returns what to do next.
	Failed(q *Query, f Failure, now time.Time) Verdict
	// Member reports that a replica has left, or is back with an empty cache.
	Member(side Side, i int, here bool, now time.Time)
}

// checkTroubles checks that every named replica exists, and that the routers can handle failures.
func (c *Cluster) checkTroubles() error {
	for _, t := range c.cfg.Troubles {
		if t.Index >= len(c.engines.of[t.Side]) {
			return fmt.Errorf("trouble of %s, which is not in the cluster", ID(t.Side, t.Index))
		}
	}
	for _, f := range c.fronts {
		if _, ok := f.Router.(Survivor); !ok && len(c.cfg.Troubles) > 0 {
			return fmt.Errorf("this router cannot handle failing replicas")
		}
	}
	return nil
}

// planTroubles plans the begin and the end of each trouble.
func (c *Cluster) planTroubles(seed uint64) {
	c.failures.chance = rand.New(rand.NewPCG(seed, 0x74726f75))
	for i := range c.cfg.Troubles {
		t := &c.cfg.Troubles[i]
		c.clock.events.add(event{at: t.From, kind: turned, trouble: t})
		c.clock.events.add(event{at: t.To, kind: turned, trouble: t})
	}
}

// turn begins or ends a trouble.
func (c *Cluster) turn(t *Trouble) {
	e, begins := c.engines.of[t.Side][t.Index], c.clock.now < t.To
	switch {
	case t.Gone && begins:
		e.gone = true
		c.clock.events.add(event{at: c.clock.now + noticedAfter, kind: noticed, e: e})
	case t.Gone:
		c.clock.rejoin(t, e)
	case t.Slow > 0:
		cost := c.cfg.Nodes[t.Side][t.Index].Engine.Cost
		if begins {
			cost.Speed = cmp.Or(cost.Speed, 1) / t.Slow
		}
		e.core.SetCost(cost)
	case begins:
		e.failing = t.Fail
	default:
		e.failing = 0
	}
}

// rejoin brings a replica back like a new process: after its old requests have ended, and with an empty
// cache.
func (c *virtualTime) rejoin(t *Trouble, e *engine) {
	if !e.core.ResetPrefixCache() {
		c.events.add(event{at: c.now + rejoinEvery, kind: turned, trouble: t})
		return
	}
	e.gone = false
	c.events.add(event{at: c.now + noticedAfter, kind: noticed, e: e})
}

// notice tells the routers that a replica has left or is back.
func (c *Cluster) notice(e *engine) {
	for _, f := range c.fronts {
		f.Router.(Survivor).Member(e.side, e.index, !e.gone, Time(c.clock.now))
		c.admit(f)
	}
}

// turnsAway reports whether an engine refuses or fails a request, and tells the router of x.
func (c *Cluster) turnsAway(x *call, e *engine) bool {
	fails := e.failing == 1 || e.failing > 0 && c.failures.chance.Float64() < e.failing
	if !e.gone && !fails {
		return false
	}
	x.leg.failure = Failure{Leg: x.leg.side, Replica: e.index, Refused: e.gone}
	c.clock.events.add(event{at: c.clock.now + c.cfg.Hop, kind: failed, call: x})
	return true
}

// legFailed handles a failure at the router: the request is tried again, or its client gets the error.
func (c *Cluster) legFailed(x *call) {
	x.leg.failure.Took = c.clock.now - x.leg.sentAt
	if x.leg.side == Decode {
		x.leg.failure.Took = c.clock.now - x.leg.boundAt
	}
	v := x.front.Router.(Survivor).Failed(&x.q, x.leg.failure, Time(c.clock.now))
	if x.leg.side == Decode && x.place.p >= 0 && v.GivesBack {
		p := c.engines.of[Prefill][x.place.p]
		p.core.Notify(c.clock.now, x.id())
		c.clock.events.add(event{at: c.clock.now, kind: wakened, e: p})
	}
	c.failures.count++
	x.rec.Failures++
	x.place.placed, x.transfer.params = false, nil
	c.endPiece(x)
	if v.Again {
		c.clock.events.add(event{at: c.clock.now + v.After, kind: retried, call: x})
	} else {
		c.lose(x)
	}
	c.admit(x.front)
}

// lose ends a call with an error. Its client continues with its session.
func (c *Cluster) lose(x *call) {
	x.rec = Record{
		At: x.rec.At, Session: x.rec.Session, Call: x.rec.Call, Prompt: x.rec.Prompt,
		Failures: x.rec.Failures, Failed: true, Prefill: -1, Decode: -1,
	}
	c.close(x)
}

// attemptShift is the bit of a leg's id where the number of the attempt begins, above the slot. Each attempt
// has its own id, because an engine may still hold blocks of a failed attempt.
const attemptShift = 20

// id is the request id of x at engines.
func (x *call) id() string { return strconv.Itoa(x.q.Slot | x.place.attempt<<attemptShift) }

// slotOf returns the slot of an id.
func slotOf(id string) (int, error) {
	n, err := strconv.Atoi(id)
	return n & (1<<attemptShift - 1), err
}
