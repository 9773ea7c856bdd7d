package cluster

import "time"

// gaps keeps the longest pause of a stream. The way to the client takes every token equally long, so a client
// sees the engine's pauses.
type gaps struct {
	last    time.Duration // time of the previous token
	longest time.Duration
}

// token records a token.
func (g *gaps) token(at time.Duration, first bool) {
	if !first {
		g.longest = max(g.longest, at-g.last)
	}
	g.last = at
}
