package cluster

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
)

// LinkModel says how simultaneous transfers share links.
type LinkModel uint8

const (
	// Queued engines send or receive one prompt after the other, at the speed of the path. A transfer waits
	// until both of its ends are free, and occupies both.
	Queued LinkModel = iota
	// Shared engines send and receive all prompts at the same time. The transfers at one end share its
	// bandwidth. No transfer gets less than another from which it could take bandwidth.
	Shared
)

var linkModels = []string{"queue", "shared"}

// ParseLinkModel reads one by its name; "" is queue.
func ParseLinkModel(name string) (LinkModel, error) {
	if name == "" {
		return Queued, nil
	}
	if i := slices.Index(linkModels, name); i >= 0 {
		return LinkModel(i), nil
	}
	return Queued, fmt.Errorf("no model of links %q: want one of %q", name, linkModels)
}

func (m LinkModel) String() string { return linkModels[m] }

// flow is one running transfer.
type flow struct {
	ends  [2]int       // prefill and decode engine
	class replica.Link // of the path
	left  float64      // bytes
	rate  float64      // bytes a second
	began time.Duration
	call  *call
}

// network is the set of running transfers. They share the bandwidth of their ends. It has no clock: its
// caller reports the begin of a transfer, and asks for the end of the next one.
//
// Each end of an engine has a bandwidth for each class of path. This bandwidth limits all transfers over this
// class and farther ones. So transfers between two racks leave the rest of the bandwidth to the own rack.
type network struct {
	speed  [replica.Links]float64 // bytes a second of a path
	limit  [replica.Links]float64 // of an end, for paths of this class and farther ones
	flows  []*flow
	ends   [2][]end // by side and engine
	at     time.Duration
	due    time.Duration // when the next flow ends; none while there are no flows
	passed float64       // bytes, of flows that are over
}

// end is one side of an engine's network while bandwidth is shared out.
type end [replica.Links]struct {
	open int     // flows of this class and farther without a known rate
	used float64 // by the flows with a known rate
}

func newNetwork(speed [replica.Links]float64, prefill, decode int) *network {
	n := &network{speed: speed, ends: [2][]end{make([]end, prefill), make([]end, decode)}}
	for class := range n.limit {
		n.limit[class] = slices.Max(speed[class:])
	}
	return n
}

// begin adds a transfer.
func (n *network) begin(now time.Duration, f *flow) {
	n.advance(now)
	n.flows = append(n.flows, f)
	f.began = now
	n.share()
}

// done removes the transfers that have ended.
func (n *network) done(now time.Duration) []*flow {
	n.advance(now)
	var over []*flow
	n.flows = slices.DeleteFunc(n.flows, func(f *flow) bool {
		// Times are whole nanoseconds: a rest of two nanoseconds counts as moved.
		if f.left > f.rate*2e-9 {
			return false
		}
		over = append(over, f)
		return true
	})
	n.share()
	return over
}

// advance moves bytes up to now.
func (n *network) advance(now time.Duration) {
	for _, f := range n.flows {
		moved := min(f.left, f.rate*(now-n.at).Seconds())
		f.left -= moved
		n.passed += moved
	}
	n.at = now
}

// share divides the bandwidth by max-min fairness. All rates grow alike until an end or a path is full. The
// flows through a full end or path are done, and the others continue to grow.
func (n *network) share() {
	for side := range n.ends {
		clear(n.ends[side])
	}
	for _, f := range n.flows {
		f.rate = -1 // not known yet
		n.limits(f, func(x *end, class replica.Link) { x[class].open++ })
	}
	for open := len(n.flows); open > 0; {
		level := n.level()
		for _, f := range n.flows {
			if f.rate >= 0 || n.room(f) > level*(1+1e-12) {
				continue
			}
			f.rate = level
			open--
		}
		n.recount()
	}
	n.due = n.next()
}

// limits visits the limits that hold for a flow: at both ends, of its class and of nearer ones.
func (n *network) limits(f *flow, visit func(*end, replica.Link)) {
	for side, i := range f.ends {
		for class := range f.class + 1 {
			visit(&n.ends[side][i], class)
		}
	}
}

// room is the rate that a flow could reach if all undecided flows grow alike.
func (n *network) room(f *flow) float64 {
	most := n.speed[f.class]
	n.limits(f, func(x *end, class replica.Link) {
		most = min(most, max(0, n.limit[class]-x[class].used)/float64(x[class].open))
	})
	return most
}

// level is the least room of all flows without a known rate.
func (n *network) level() float64 {
	least := math.Inf(1)
	for _, f := range n.flows {
		if f.rate < 0 {
			least = min(least, n.room(f))
		}
	}
	return least
}

// recount sums up the used bandwidth at each end, and counts its undecided flows.
func (n *network) recount() {
	for side := range n.ends {
		clear(n.ends[side])
	}
	for _, f := range n.flows {
		n.limits(f, func(x *end, class replica.Link) {
			if f.rate < 0 {
				x[class].open++
			} else {
				x[class].used += f.rate
			}
		})
	}
}

// next is when the first of the flows ends if nothing else happens.
func (n *network) next() time.Duration {
	first := time.Duration(math.MaxInt64)
	for _, f := range n.flows {
		first = min(first, n.at+time.Duration(f.left/f.rate*1e9))
	}
	return first
}

// busy is the time that an engine's side of the network needs for its transfers under way.
func (n *network) busy(side Side, i int, now time.Duration) time.Duration {
	seconds := 0.0
	for _, f := range n.flows {
		if f.ends[side] == i {
			seconds += (f.left - f.rate*(now-n.at).Seconds()) / n.speed[f.class]
		}
	}
	return time.Duration(max(0, seconds) * 1e9)
}

// flow begins a transfer over [Shared] links.
func (c *Cluster) flow(x *call, p, d *engine, class replica.Link) {
	if x.rec.Moved == 0 {
		x.rec.Transfer = c.cfg.Setup + x.transfer.posting
		c.clock.events.add(event{at: c.clock.now + x.rec.Transfer, kind: read, call: x})
		return
	}
	c.network.begin(c.clock.now, &flow{
		ends: [2]int{p.index, d.index}, class: class, left: float64(x.rec.Moved), call: x,
	})
	c.awaitFlows()
}

// awaitFlows plans the end of the next transfer. Earlier plans become out of date.
func (c *Cluster) awaitFlows() {
	if len(c.network.flows) > 0 {
		c.clock.events.add(event{at: c.network.due, kind: flowed})
	}
}

// flowed ends the transfers that are complete now.
func (c *Cluster) flowed() {
	if len(c.network.flows) == 0 || c.network.due != c.clock.now {
		return // a newer plan exists
	}
	for _, f := range c.network.done(c.clock.now) {
		done := c.clock.now + c.cfg.Setup + f.call.transfer.posting
		f.call.rec.Transfer = done - f.began
		c.clock.events.add(event{at: done, kind: read, call: f.call})
	}
	c.awaitFlows()
}
