package cluster

import "time"

// gaps keeps the longest pause of a stream. A client sees tokens as far apart as the engine gave them out,
// since the way to it takes every token equally long.
type gaps struct {
	last    time.Duration // when the token before came
	longest time.Duration
}

// token notes that one has come.
func (g *gaps) token(at time.Duration, first bool) {
	if !first {
		g.longest = max(g.longest, at-g.last)
	}
	g.last = at
}
