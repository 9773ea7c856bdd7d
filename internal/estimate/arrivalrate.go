package estimate

import (
	"math"
	"time"
)

// paceWindow is how far back a pace looks, as the time constant of an exponential window.
const paceWindow = 30 * time.Second

// ArrivalRate measures how many events come a second. Asking costs next to nothing. The zero ArrivalRate has
// seen none. Not safe for concurrent use.
type ArrivalRate struct {
	sum   float64 // events, each decayed by its age at last
	since time.Time
	last  time.Duration // behind since: one difference of times tells both ages
}

// Add takes in that one came at now.
func (p *ArrivalRate) Add(now time.Time) {
	if p.since.IsZero() {
		p.since = now
	}
	seen := now.Sub(p.since)
	idle := max(0, seen-p.last)
	p.sum = p.sum*math.Exp(-idle.Seconds()/paceWindow.Seconds()) + 1
	p.last = seen
}

// Rate returns the events a second at now, fewer where none has come for long.
func (p *ArrivalRate) Rate(now time.Time) float64 {
	if p.sum == 0 {
		return 0
	}
	seen := now.Sub(p.since)
	window := min(paceWindow, max(meterWarm, seen))
	return p.sum / (window + max(0, seen-p.last)).Seconds()
}
