package cluster

import "time"

// Piecer is a [Router] that sends a long prompt which a decode replica computes itself in pieces: requests
// for longer and longer beginnings of it, whose answers nobody wants, and then the request itself.
type Piecer interface {
	// Next returns how many leading tokens of a placed prompt are sent now, all of them for the request itself.
	// With 0 it is asked again when an engine has answered something.
	Next(q *Query, now time.Time) (upto int)

	// Computed tells that the answer of that piece has come.
	Computed(q *Query, now time.Time)
}

// advance sends the next piece of a prompt to its decode replica, or the request itself, or lets it wait.
func (c *Cluster) advance(x *call) {
	p, ok := x.front.Router.(Piecer)
	upto := len(x.prompt)
	if ok {
		upto = p.Next(&x.q, Time(c.now))
	}
	switch {
	case upto == 0:
		x.front.paused = append(x.front.paused, x)
	case upto < len(x.prompt):
		x.piece, x.boundAt = upto, c.now
		c.send(x)
	default:
		c.bind(x)
	}
}

// pieceDone is the answer of a piece at the router.
func (c *Cluster) pieceDone(x *call) {
	x.piece = 0
	x.rec.Pieces++
	x.front.Router.(Piecer).Computed(&x.q, Time(c.now))
	c.advance(x)
	c.resume(x.front)
}

// resume asks for all that wait whether they go on.
func (c *Cluster) resume(f *front) {
	paused := f.paused
	f.paused = nil
	for _, x := range paused {
		c.advance(x)
	}
}
