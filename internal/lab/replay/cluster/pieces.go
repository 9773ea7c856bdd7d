package cluster

import "time"

// Piecer is a [Router] that sends a long prompt in pieces when a decode replica computes it. A piece is a
// request for a longer beginning of the prompt than the piece before; its answer is not used. The request
// itself comes last.
type Piecer interface {
	// Next returns how many leading tokens of a placed prompt are sent now; all tokens mean the request itself.
	// If upto is 0, Next is called again after ask, or when it calls wake. It may call wake before it returns.
	Next(q *Query, now time.Time, wake func()) (upto int, ask time.Duration)

	// Computed reports that the answer of the piece has come. pauses are the times during the piece in which no
	// stream of the engine got a token; none if unknown. The callee does not keep pauses.
	Computed(q *Query, pauses []time.Duration, now time.Time)
}

// turn is when a call that waits for the next piece of its prompt asks for it.
type turn struct {
	waits bool
	at    time.Duration
	wake  func() // lets the call ask now
}

// advance sends the next piece of a prompt, or the request itself, to its decode replica, or lets it wait.
func (c *Cluster) advance(x *call) {
	p, ok := x.front.Router.(Piecer)
	if !ok {
		c.bind(x)
		return
	}
	if x.leg.turn.wake == nil {
		x.leg.turn.wake = func() { c.askAt(x, c.clock.now) }
	}
	upto, again := p.Next(&x.q, Time(c.clock.now), x.leg.turn.wake)
	switch {
	case upto == 0:
		x.leg.turn.waits = true
		c.askAt(x, c.clock.now+again)
	case upto < len(x.prompt):
		x.leg.piece, x.leg.boundAt = upto, c.clock.now
		x.leg.beside = c.engines.of[Decode][x.place.d].beside.watch(c.clock.now)
		c.send(x)
	default:
		c.bind(x)
	}
}

// askAt lets a call that waits ask again at that time.
func (c *Cluster) askAt(x *call, at time.Duration) {
	x.leg.turn.at = at
	c.clock.events.add(event{at: at, kind: asked, call: x})
}

// asks lets a call ask for its next piece, unless a newer instruction came since.
func (c *Cluster) asks(x *call) {
	if x.leg.turn.waits && x.leg.turn.at == c.clock.now {
		x.leg.turn.waits = false
		c.advance(x)
	}
}

// pieceDone handles the answer of a piece at the router.
func (c *Cluster) pieceDone(x *call) {
	pauses := c.endPiece(x)
	x.rec.Pieces++
	x.front.Router.(Piecer).Computed(&x.q, pauses, Time(c.clock.now))
	c.advance(x)
}

// endPiece ends the running piece of x, if there is one, and returns the pauses of the streams during it.
func (c *Cluster) endPiece(x *call) (pauses []time.Duration) {
	if x.leg.piece > 0 {
		pauses = c.engines.of[Decode][x.place.d].beside.end(x.leg.beside, c.clock.now)
		x.leg.piece = 0
	}
	return pauses
}
