package scoring

import (
	"math"
	"time"
)

// paceWindow is how far back a pace looks, as the time constant of an exponential window; paceWarm is how
// long it counts as running at least, so that a burst at its start does not read as what is usual.
const (
	paceWindow = 30 * time.Second
	paceWarm   = 15 * time.Second
)

// ArrivalRate measures how many events come a second. Asking costs next to nothing. The zero ArrivalRate has
// seen none. Not safe for concurrent use.
type ArrivalRate struct {
	sum       float64 // events, each decayed by its age at last
	at, since time.Time
}

// Add takes in that one came at now.
func (p *ArrivalRate) Add(now time.Time) {
	if p.since.IsZero() {
		p.since, p.at = now, now
	}
	idle := max(0, now.Sub(p.at))
	p.sum = p.sum*math.Exp(-idle.Seconds()/paceWindow.Seconds()) + 1
	p.at = now
}

// Rate returns the events a second at now, fewer where none has come for long.
func (p *ArrivalRate) Rate(now time.Time) float64 {
	if p.since.IsZero() {
		return 0
	}
	window := min(paceWindow, max(paceWarm, now.Sub(p.since)))
	return p.sum / (window + max(0, now.Sub(p.at))).Seconds()
}
